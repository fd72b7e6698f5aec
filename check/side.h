// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a check works with: a VCQ with memory in each of two processes, posts that wait for room, queues that are read
// in order, words that are polled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "finding.h"
#include "library.h"
#include "meeting.h"

namespace tofu::check {

inline constexpr unsigned long strong = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
inline constexpr unsigned long tcq = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
inline constexpr unsigned long local_mrq = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
inline constexpr unsigned long remote_mrq = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

/// What the guide calls a page for the order of bytes (6.1.3.2), and a line.
inline constexpr std::size_t page = 65536;
inline constexpr std::size_t line = 256;

struct Side {
    const Library& u;
    Meeting& meeting;
    std::vector<utofu_tni_id_t> tnis;
    utofu_onesided_caps caps{}; ///< of the first TNI

    [[nodiscard]] int rank() const noexcept { return meeting.rank(); }
    /// The provider's processes take TNIs in turn; so do ours.
    [[nodiscard]] utofu_tni_id_t tni(unsigned next = 0) const
    {
        return tnis[(static_cast<unsigned>(rank()) + next) % tnis.size()];
    }
};

/// Memory with pages of its own.
class Memory {
  public:
    explicit Memory(std::size_t bytes);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();
    [[nodiscard]] std::uint8_t* at(std::size_t offset = 0) const noexcept { return start_ + offset; }
    [[nodiscard]] std::uint64_t& word(std::size_t offset = 0) const noexcept
    {
        return *reinterpret_cast<std::uint64_t*>(start_ + offset);
    }
    /// A word that a peer writes or reads. acquire: its writer has written the accompanying data before it.
    [[nodiscard]] std::uint64_t load(std::size_t offset = 0, std::memory_order order = std::memory_order_acquire) const
    {
        return std::atomic_ref<std::uint64_t>(word(offset)).load(order);
    }
    void store(std::size_t offset, std::uint64_t value) const
    {
        std::atomic_ref<std::uint64_t>(word(offset)).store(value, std::memory_order_release);
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    std::uint8_t* start_;
    std::size_t size_;
};

struct Told {
    int code = UTOFU_SUCCESS;
    utofu_mrq_notice notice{};
};
struct Sent {
    int code = UTOFU_SUCCESS;
    void* cbdata = nullptr;
};

/// A VCQ of this process. Its queues are read in the order of their entries.
class Vcq {
  public:
    Vcq(const Side& side, utofu_tni_id_t tni, unsigned long flags = 0);
    Vcq(const Vcq&) = delete;
    Vcq& operator=(const Vcq&) = delete;
    ~Vcq() { free(); }
    int free() noexcept;

    [[nodiscard]] utofu_vcq_hdl_t handle() const noexcept { return handle_; }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept { return id_; }
    [[nodiscard]] utofu_stadd_t reg(const void* address, std::size_t size, unsigned long flags = 0);
    void dereg(utofu_stadd_t stadd) { must(u_.dereg_mem(handle_, stadd, 0), "utofu_dereg_mem"); }

    /// Posts, waiting for room; what it reads from the TCQ for that is kept. Throws Stop for any other answer.
    template <class Call>
    void post(Call&& call)
    {
        const int code = try_post(call);
        must(code, "a post");
    }
    template <class Call>
    [[nodiscard]] int try_post(Call&& call)
    {
        int code;
        for (Patience patience("room in the TOQ"); (code = call()) == UTOFU_ERR_BUSY; patience.next())
            (void)read_tcq();
        return code;
    }
    /// The next entry; throws Silence.
    [[nodiscard]] Told next_mrq(double limit = Patience::seconds);
    [[nodiscard]] Sent next_tcq();
    /// The next one of an MRQ, which must be a success.
    utofu_mrq_notice must_mrq();
    /// The first report of a failed communication, by any queue. Throws Silence.
    [[nodiscard]] int next_answer(double limit);
    /// The end of a post, or why it was refused; UTOFU_ERR_NOT_COMPLETED where none comes.
    [[nodiscard]] int end_of(int posted);
    bool read_tcq();
    [[nodiscard]] bool read_mrq(Told& told);

  private:
    const Library& u_;
    utofu_vcq_hdl_t handle_ = 0;
    utofu_vcq_id_t id_ = 0;
    std::deque<Sent> sent_;
};

enum class Access { put, get, armw };

/// A VCQ with registered memory at each side, which know each other.
class Link {
  public:
    Link(Side& side, std::size_t bytes, unsigned long reg_flags = 0);

    Side& side;
    const Library& u;
    Memory memory;
    Vcq vcq;
    utofu_stadd_t stadd; ///< of memory
    utofu_vcq_id_t peer = 0;
    utofu_stadd_t peer_stadd = 0;

    [[nodiscard]] int rank() const noexcept { return side.rank(); }
    void put(std::size_t from, std::size_t to, std::size_t length, unsigned long flags, std::uint64_t edata = 0)
    {
        vcq.post(
            [&] { return u.put(vcq.handle(), peer, stadd + from, peer_stadd + to, length, edata, flags, nullptr); });
    }
    void put_word(std::uint64_t value, std::size_t to, unsigned long flags, std::uint64_t edata = 0)
    {
        vcq.post([&] {
            return u.put_piggyback(vcq.handle(), peer, &value, peer_stadd + to, sizeof value, edata, flags, nullptr);
        });
    }
    void get(std::size_t into, std::size_t from, std::size_t length, unsigned long flags, std::uint64_t edata = 0)
    {
        vcq.post(
            [&] { return u.get(vcq.handle(), peer, stadd + into, peer_stadd + from, length, edata, flags, nullptr); });
    }
    void armw(utofu_armw_op op, std::uint64_t operand, std::size_t at, unsigned long flags, std::uint64_t edata = 0)
    {
        vcq.post([&] { return u.armw8(vcq.handle(), peer, op, operand, peer_stadd + at, edata, flags, nullptr); });
    }
    /// One access to 8 bytes of a peer's, from or into the start of own memory, its notice wanted: how it ended, by
    /// which code the post was refused, or UTOFU_ERR_NOT_COMPLETED if nothing reports it.
    [[nodiscard]] int access(Access kind, utofu_vcq_id_t to, utofu_stadd_t at, std::uint64_t edata = 3);
    /// Without waiting for the end, and with any flags.
    [[nodiscard]] int try_post(Access kind, utofu_vcq_id_t to, utofu_stadd_t at, unsigned long flags,
                               std::uint64_t edata);
    /// Waits until a word of own memory has this value.
    void await(std::size_t offset, std::uint64_t value, const char* what) const;
    void together() { side.meeting.together(); }
};

/// What process 0 finds over a link of one page; the other one waits for its end.
template <class Body>
Finding by_first(Side& side, Body&& body)
{
    Link link(side, page);
    const Finding finding = side.rank() == 0 ? body(link) : Finding{};
    link.together();
    return finding;
}

} // namespace tofu::check
