// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_THREAD_SAFE: threads of one domain whose endpoints, regions, queues and counters come and go at random, while each
// thread sends to the others, receives, reads, writes and defers work. Each operation ends once at most, each close
// succeeds, and nothing crashes. Worth a run under TSan, which has found most of what it is for.
#include "prov/lib/session.h"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include <rdma/fi_trigger.h>

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr unsigned threads = 4;
constexpr unsigned steps = 600; ///< of each thread
constexpr std::size_t window = 65536;
const std::size_t lengths[] = {0, 8, 200, 3000, 9000, 40000}; ///< each protocol

/// One operation; its address is the context. It stays until the domain is closed: a second end must be seen.
struct Transfer {
    explicit Transfer(std::size_t size) : bytes(size) {}
    fi_triggered_context2 context{};
    std::atomic<unsigned> ends{0};
    std::vector<char> bytes;
    bool is_multi = false; ///< FI_MULTI_RECV: only the entry with this flag is its end
    iovec iov{};
    fi_op_tagged send{};
    fi_deferred_work work{};
};

/// What the others may reach of a thread now.
struct Place {
    std::mutex mutex;
    fi_addr_t address = FI_ADDR_NOTAVAIL; ///< its endpoint
    Window region{0, 0};                  ///< its region; base 0: none
};

void end(fid_cq* cq, const fi_cq_data_entry& entry)
{
    if (entry.op_context == nullptr)
        return; // the data of a write
    Transfer& op = *static_cast<Transfer*>(entry.op_context);
    if (op.is_multi && (entry.flags & FI_MULTI_RECV) == 0)
        return;
    EXPECT_EQ(op.ends.fetch_add(1), 0u) << "flags " << entry.flags << ", queue " << cq;
}

void read_some(fid_cq* cq)
{
    fi_cq_data_entry entries[4];
    const ssize_t got = fi_cq_read(cq, entries, 4);
    if (got == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        if (fi_cq_readerr(cq, &error, 0) == 1 && error.op_context != nullptr)
            EXPECT_EQ(static_cast<Transfer*>(error.op_context)->ends.fetch_add(1), 0u) << fi_strerror(error.err);
    }
    for (ssize_t i = 0; i < got; i++)
        end(cq, entries[i]);
}

/// One of the threads: an endpoint, plain or scalable, with queue, counters and region.
class Resident {
  public:
    Resident(Session& s, std::array<Place, threads>& places, unsigned number)
        : s_(s), places_(places), place_(places[number]), random_(number), memory_(new char[window])
    {
    }
    void live()
    {
        open();
        for (unsigned i = 0; i < steps && !testing::Test::HasFailure(); i++) {
            step();
            read_some(s_.cq);
            read_some(cq_);
        }
        close();
    }

  private:
    unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }
    Transfer& op(std::size_t size) { return ops_.emplace_back(size); }
    /// The endpoint of some thread, and its region. False: it has none now.
    bool find_peer(fi_addr_t& address, Window& region)
    {
        Place& other = places_[draw(threads)];
        std::lock_guard guard(other.mutex);
        address = other.address;
        region = other.region;
        return address != FI_ADDR_NOTAVAIL;
    }

    void open()
    {
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_DATA;
        queue.wait_obj = draw(2) == 0 ? FI_WAIT_FD : FI_WAIT_UNSPEC;
        fi_cntr_attr count{};
        Session::check(fi_cq_open(s_.domain, &queue, &cq_, nullptr), "fi_cq_open");
        Session::check(fi_cntr_open(s_.domain, &count, &sent_, nullptr), "fi_cntr_open");
        Session::check(fi_cntr_open(s_.domain, &count, &trigger_, nullptr), "fi_cntr_open");
        draw(3) == 0 ? open_scalable() : open_plain();
        char name[64];
        std::size_t length = sizeof name;
        Session::check(fi_getname(&whole_->fid, name, &length), "fi_getname");
        EXPECT_EQ(fi_av_insert(s_.av, name, 1, &self_, 0, nullptr), 1);
        open_region();
        std::lock_guard guard(place_.mutex);
        place_.address = self_;
    }
    void bind_context(fid_ep* tx, fid_ep* rx, fid_cq* tx_cq, fid_cq* rx_cq)
    {
        const bool same = tx == rx && tx_cq == rx_cq;
        Session::check(fi_ep_bind(tx, &tx_cq->fid, same ? FI_TRANSMIT | FI_RECV : FI_TRANSMIT), "bind cq");
        if (!same)
            Session::check(fi_ep_bind(rx, &rx_cq->fid, FI_RECV), "bind cq");
        Session::check(fi_ep_bind(tx, &sent_->fid, FI_SEND | FI_WRITE), "bind cntr");
    }
    void open_plain()
    {
        Session::check(fi_endpoint(s_.domain, s_.info, &whole_, nullptr), "fi_endpoint");
        Session::check(fi_ep_bind(whole_, &s_.av->fid, 0), "bind av");
        bind_context(whole_, whole_, draw(2) == 0 ? s_.cq : cq_, draw(2) == 0 ? s_.cq : cq_);
        Session::check(fi_enable(whole_), "fi_enable");
        tx_ = {whole_, whole_};
        rx_ = {whole_, whole_};
    }
    void open_scalable()
    {
        fi_info* const info = fi_dupinfo(s_.info);
        info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 2;
        Session::check(fi_scalable_ep(s_.domain, info, &whole_, nullptr), "fi_scalable_ep");
        fi_freeinfo(info);
        Session::check(fi_scalable_ep_bind(whole_, &s_.av->fid, 0), "bind av");
        Session::check(fi_enable(whole_), "fi_enable");
        for (int i = 0; i < 2; i++) {
            Session::check(fi_tx_context(whole_, i, nullptr, &tx_[i], nullptr), "fi_tx_context");
            Session::check(fi_rx_context(whole_, i, nullptr, &rx_[i], nullptr), "fi_rx_context");
            bind_context(tx_[i], rx_[i], draw(2) == 0 ? s_.cq : cq_, draw(2) == 0 ? s_.cq : cq_);
            Session::check(fi_enable(tx_[i]), "fi_enable");
            Session::check(fi_enable(rx_[i]), "fi_enable");
        }
    }
    void open_region()
    {
        Session::check(
            fi_mr_reg(s_.domain, memory_.get(), window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr_, nullptr),
            "fi_mr_reg");
        std::lock_guard guard(place_.mutex);
        place_.region = {reinterpret_cast<std::uint64_t>(memory_.get()), fi_mr_key(mr_)};
    }
    void close_region()
    {
        {
            std::lock_guard guard(place_.mutex);
            place_.region = {0, 0};
        }
        EXPECT_EQ(fi_close(&mr_->fid), 0);
    }
    void close()
    {
        {
            std::lock_guard guard(place_.mutex);
            place_.address = FI_ADDR_NOTAVAIL;
        }
        for (int i = 0; i < 2 && tx_[i] != whole_; i++) {
            EXPECT_EQ(fi_close(&tx_[i]->fid), 0);
            EXPECT_EQ(fi_close(&rx_[i]->fid), 0);
        }
        EXPECT_EQ(fi_close(&whole_->fid), 0);
        close_region();
        EXPECT_EQ(fi_close(&sent_->fid), 0);
        EXPECT_EQ(fi_close(&trigger_->fid), 0);
        for (unsigned i = 0; i < 100; i++)
            read_some(cq_);
        EXPECT_EQ(fi_close(&cq_->fid), 0);
    }

    void step()
    {
        switch (draw(5)) {
        case 0: return send();
        case 1: return receive();
        case 2: return reach_memory();
        case 3: return defer();
        default: return change();
        }
    }
    void send()
    {
        fi_addr_t to;
        Window region;
        if (!find_peer(to, region))
            return;
        Transfer& o = op(lengths[draw(6)]);
        const ssize_t ret =
            draw(8) == 0
                ? fi_tinject(tx_[draw(2)], o.bytes.data(), std::min<std::size_t>(o.bytes.size(), 64), to, draw(4))
                : fi_tsend(tx_[draw(2)], o.bytes.data(), o.bytes.size(), nullptr, to, draw(4), &o);
        // The peer's endpoint may have closed since.
        const bool gone = ret == -FI_EHOSTDOWN || ret == -FI_EADDRNOTAVAIL;
        EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN || gone) << fi_strerror(static_cast<int>(-ret));
    }
    void receive()
    {
        fid_ep* const ep = rx_[draw(2)];
        Transfer& o = op(lengths[1 + draw(5)]);
        fi_msg_tagged look{};
        look.addr = FI_ADDR_UNSPEC;
        look.tag = draw(4);
        look.context = &o;
        ssize_t ret = 0;
        switch (draw(5)) {
        case 0:
            o.is_multi = true;
            o.iov = {o.bytes.data(), o.bytes.size()};
            {
                const fi_msg multi{&o.iov, nullptr, 1, FI_ADDR_UNSPEC, &o, 0};
                ret = fi_recvmsg(ep, &multi, FI_MULTI_RECV | FI_COMPLETION);
            }
            break;
        case 1: ret = fi_trecvmsg(ep, &look, FI_PEEK | (draw(2) == 0 ? FI_DISCARD : 0)); break;
        case 2: // one of the last that was posted, or something else
            ret = fi_cancel(&ep->fid, &ops_[ops_.size() - 1 - draw(static_cast<unsigned>(std::min(ops_.size(), 9ul)))]);
            EXPECT_TRUE(ret == 0 || ret == -FI_ENOENT);
            return;
        default: ret = fi_trecv(ep, o.bytes.data(), o.bytes.size(), nullptr, FI_ADDR_UNSPEC, draw(4), draw(2) * 3, &o);
        }
        EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
    }
    /// A read, a write or an atomic, of whatever the peer's region is by then.
    void reach_memory()
    {
        fi_addr_t to;
        Window w;
        if (!find_peer(to, w) || w.base == 0)
            return;
        fid_ep* const ep = tx_[draw(2)];
        Transfer& o = op(std::max<std::size_t>(lengths[draw(6)], 64));
        switch (draw(4)) {
        case 0: (void)fi_write(ep, o.bytes.data(), o.bytes.size(), nullptr, to, w.base, w.key, &o); break;
        case 1: (void)fi_read(ep, o.bytes.data(), o.bytes.size(), nullptr, to, w.base, w.key, &o); break;
        case 2: (void)fi_atomic(ep, o.bytes.data(), 4, nullptr, to, w.base, w.key, FI_DOUBLE, FI_SUM, &o); break;
        default:
            (void)fi_fetch_atomic(ep, o.bytes.data(), 1, nullptr, o.bytes.data() + 32, nullptr, to, w.base, w.key,
                                  FI_UINT64, draw(2) == 0 ? FI_SUM : FI_MIN, &o);
        }
    }
    /// A send that waits for the counter that the thread raises now and then.
    void defer()
    {
        fi_addr_t to;
        Window region;
        if (draw(3) == 0)
            return static_cast<void>(fi_cntr_add(trigger_, 1));
        if (!find_peer(to, region))
            return;
        Transfer& o = op(lengths[draw(6)]);
        o.iov = {o.bytes.data(), o.bytes.size()};
        o.send = {tx_[draw(2)], {&o.iov, nullptr, 1, to, draw(4), 0, &o, 0}, 0};
        o.work.threshold = fi_cntr_read(trigger_) + draw(3);
        o.work.triggering_cntr = trigger_;
        o.work.op_type = FI_OP_TSEND;
        o.work.op.tagged = &o.send;
        EXPECT_EQ(fi_control(&s_.domain->fid, FI_QUEUE_WORK, &o.work), 0);
        if (draw(4) == 0) {
            const int ret = fi_control(&s_.domain->fid, FI_CANCEL_WORK, &o.work);
            EXPECT_TRUE(ret == 0 || ret == -FI_ENOENT);
        }
    }
    void change()
    {
        fi_cq_data_entry entry{};
        switch (draw(12)) {
        case 0: close(); return open();
        case 1: close_region(); return open_region();
        case 2: return static_cast<void>(fi_cntr_wait(sent_, fi_cntr_read(sent_) + 1, 1));
        case 3:
            if (fi_cq_sread(cq_, &entry, 1, nullptr, 1) == 1)
                end(cq_, entry);
            return;
        default: return;
        }
    }

    Session& s_;
    std::array<Place, threads>& places_;
    Place& place_;
    std::minstd_rand random_;
    const std::unique_ptr<char[]> memory_;
    std::deque<Transfer> ops_;
    fid_ep* whole_ = nullptr;
    std::array<fid_ep*, 2> tx_{}, rx_{}; ///< the contexts; those of a plain endpoint are itself
    fid_cq* cq_ = nullptr;
    fid_cntr* sent_ = nullptr;
    fid_cntr* trigger_ = nullptr;
    fid_mr* mr_ = nullptr;
    fi_addr_t self_ = FI_ADDR_NOTAVAIL;
};

void churn(fi_progress progress)
{
    expect_processes(1, [progress](const Rank& rank) {
        std::array<Place, threads> places;
        std::deque<Resident> residents; // their operations stay until the domain is closed
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_RMA | FI_ATOMIC | FI_TRIGGER;
        options.progress = progress;
        options.wait = FI_WAIT_UNSPEC;
        Session s(rank, options);
        for (unsigned t = 0; t < threads; t++)
            residents.emplace_back(s, places, t);
        std::vector<std::thread> pool;
        for (Resident& resident : residents)
            pool.emplace_back([&resident] { resident.live(); });
        for (std::thread& thread : pool)
            thread.join();
        for (unsigned i = 0; i < 1000; i++)
            read_some(s.cq);
    });
}

TEST(Churn, OfThreadsThatMakeProgressByTheirCalls)
{
    churn(FI_PROGRESS_MANUAL);
}
TEST(Churn, BesideTheThreadOfTheDomain)
{
    churn(FI_PROGRESS_AUTO);
}

} // namespace
} // namespace tofu::test
