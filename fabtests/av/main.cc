// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include <array>
#include <cstring>
#include <string>

#include "../common/bytes.h"
#include "../common/station.h"

// fi_av_bind: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace fabtests {
namespace {

/// An address vector of its own, closed at the end.
struct Vector {
    World& w;
    fid_av* av = nullptr;
    fi_av_type type = FI_AV_UNSPEC; ///< as the provider answered

    Vector(World& world, fi_av_type wish, std::uint64_t flags = 0, int rx_ctx_bits = 0) : w(world)
    {
        fi_av_attr attr{};
        attr.type = wish;
        attr.flags = flags;
        attr.rx_ctx_bits = rx_ctx_bits;
        attr.count = 16;
        const int rc = fi_av_open(w.domain(), &attr, &av, &w);
        CHECK(w, rc == 0 || !w.ours());
        type = attr.type;
    }
    Vector(const Vector&) = delete;
    ~Vector()
    {
        if (av != nullptr)
            CHECK(w, fi_close(&av->fid) == 0);
    }
    const unsigned char* name(unsigned rank) const { return w.shared().name[rank]; }
    std::size_t length(unsigned rank) const { return w.shared().name_length[rank]; }

    int insert(unsigned rank, fi_addr_t* place, std::uint64_t flags = 0, void* context = nullptr)
    {
        return fi_av_insert(av, name(rank), 1, place, flags, context);
    }
    /// True where `place` stands for the rank.
    bool holds(fi_addr_t place, unsigned rank)
    {
        unsigned char back[64] = {};
        std::size_t size = sizeof back;
        return fi_av_lookup(av, place, back, &size) == 0 && size >= length(rank) &&
               std::memcmp(back, name(rank), length(rank)) == 0;
    }
};

bool text_form(World& w)
{
    return w.info().addr_format == FI_ADDR_STR;
}

/// The addresses of all ranks as one array, in the form that fi_av_insert wants; some may be spoilt.
class Addresses {
  public:
    explicit Addresses(World& w, unsigned spoilt = max_ranks) : texts_(text_form(w))
    {
        for (unsigned r = 0; r < w.ranks(); ++r) {
            const auto* from = w.shared().name[r];
            bytes_.insert(bytes_.end(), from, from + w.shared().name_length[r]);
            if (r == spoilt)
                std::memset(bytes_.data() + bytes_.size() - w.shared().name_length[r], 0xa5,
                            w.shared().name_length[r] - 1);
        }
        const char* at = reinterpret_cast<const char*>(bytes_.data());
        for (unsigned r = 0; r < w.ranks() && texts_; ++r, at += std::strlen(at) + 1)
            pointers_.push_back(at);
    }
    /// "the addr parameter should reference an array of strings" for FI_ADDR_STR
    const void* array() const { return texts_ ? static_cast<const void*>(pointers_.data()) : bytes_.data(); }

  private:
    bool texts_;
    std::vector<unsigned char> bytes_;
    std::vector<const char*> pointers_;
};

/// fi_av_open: type, context, flags, name
void attributes(World& w)
{
    for (fi_av_type type : {FI_AV_TABLE, FI_AV_MAP, FI_AV_UNSPEC}) {
        Vector v(w, type);
        if (v.av == nullptr)
            continue;
        CHECK(w, v.av->fid.fclass == FI_CLASS_AV);
        CHECK(w, v.av->fid.context == &w); // "associated with the address vector"
        // the type in use is returned
        CHECK(w, type == FI_AV_UNSPEC ? v.type == FI_AV_TABLE || v.type == FI_AV_MAP : v.type == type);
    }
    fid_av* av = nullptr;
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.flags = FI_READ; // must be named, and exist
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) < 0);
    const std::string name = "tofu-pages-" + std::to_string(w.rank());
    attr.name = name.c_str();
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) < 0);
    if (!w.ours())
        return;
    attr.name = nullptr;
    attr.flags = FI_READ;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == -FI_EINVAL);
    attr.flags = FI_SYMMETRIC;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == 0 && fi_close(&av->fid) == 0);
    attr.flags = FI_MORE;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == -FI_EBADFLAGS);
    attr.flags = 0;
    attr.rx_ctx_bits = 64;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == -FI_EINVAL);
    attr.rx_ctx_bits = 0;
    attr.type = static_cast<fi_av_type>(7);
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == -FI_EINVAL);
}

/// name, FI_READ, map_addr: one process fills a vector, the others read it; a process that still has it open keeps it
void shared(World& w)
{
    if (!w.has(FI_SHARED_AV))
        return;
    const std::string name = "tofu-pages-shared";
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.name = name.c_str();
    attr.flags = FI_READ;
    fid_av* av = nullptr;
    const bool fills = w.rank() == 0;
    if (fills) {
        CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) < 0); // "the AV must exist"
        attr.flags = 0;
        CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == 0);
    }
    w.barrier();
    if (!fills)
        CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == 0);
    if (av == nullptr)
        return;
    const auto* const numbers = static_cast<const fi_addr_t*>(attr.map_addr);
    CHECK(w, numbers != nullptr);
    const Addresses all(w);
    std::array<fi_addr_t, max_ranks> places{};
    if (fills)
        CHECK(w, fi_av_insert(av, all.array(), w.ranks(), places.data(), 0, nullptr) == int(w.ranks()));
    else if (w.ours())
        CHECK(w, fi_av_insert(av, all.array(), w.ranks(), places.data(), 0, nullptr) == -FI_EACCES);
    w.barrier();
    const auto holds = [&](fi_addr_t place, unsigned rank) {
        unsigned char back[64] = {};
        std::size_t size = sizeof back;
        return fi_av_lookup(av, place, back, &size) == 0 &&
               std::memcmp(back, w.shared().name[rank], w.shared().name_length[rank]) == 0;
    };
    for (unsigned r = 0; r < w.ranks() && numbers != nullptr; ++r) {
        CHECK(w, !fills || numbers[r] == places[r]);
        CHECK(w, holds(numbers[r], r));
    }
    fi_addr_t gone = 1;
    if (!fills && w.ours())
        CHECK(w, fi_av_remove(av, &gone, 1, 0) == -FI_EACCES);
    w.barrier();
    if (fills)
        CHECK(w, fi_av_remove(av, &gone, 1, 0) == 0);
    w.barrier();
    CHECK(w, !holds(1, 1) && holds(0, 0));
    w.barrier();
    if (fills)
        CHECK(w, fi_close(&av->fid) == 0);
    w.barrier();
    if (!fills) {
        CHECK(w, holds(0, 0));
        CHECK(w, fi_close(&av->fid) == 0);
    }
    w.barrier();
    attr.flags = FI_READ;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) < 0); // all have closed it
}

/// FI_AV_TABLE, fi_av_insert: indices from 0 on, across calls, whether or not they are asked for
void table(World& w)
{
    Vector v(w, FI_AV_TABLE);
    if (v.av == nullptr)
        return;
    CHECK(w, fi_av_insert(v.av, v.name(0), 0, nullptr, 0, nullptr) == 0); // zero or more addresses
    fi_addr_t next = 0;
    for (unsigned r = 0; r < w.ranks(); ++r) {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        CHECK(w, v.insert(r, r % 2 == 0 ? &place : nullptr) == 1); // "the fi_addr parameter may be NULL"
        CHECK(w, r % 2 != 0 || place == next);
        CHECK(w, v.holds(next++, r));
    }
    CHECK(w, !w.ours() || !v.holds(next, 0));
}

/// fi_av_insert of several at once; FI_MORE
void several(World& w)
{
    const Addresses all(w);
    for (fi_av_type type : {FI_AV_TABLE, FI_AV_MAP}) {
        Vector v(w, type);
        if (v.av == nullptr)
            continue;
        std::array<fi_addr_t, max_ranks> places{};
        const std::uint64_t flags = type == FI_AV_TABLE ? FI_MORE : 0;
        CHECK(w,
              fi_av_insert(v.av, all.array(), w.ranks(), places.data(), flags, nullptr) == static_cast<int>(w.ranks()));
        CHECK(w, fi_av_insert(v.av, all.array(), 0, nullptr, 0, nullptr) == 0); // the list of FI_MORE is complete
        for (unsigned r = 0; r < w.ranks(); ++r) {
            CHECK(w, places[r] != FI_ADDR_NOTAVAIL && places[r] != FI_ADDR_UNSPEC);
            CHECK(w, v.holds(places[r], r));
            CHECK(w, type != FI_AV_TABLE || places[r] == r);
            for (unsigned other = 0; other < r; ++other)
                CHECK(w, places[other] != places[r]);
        }
    }
}

/// fi_av_lookup: truncated to the buffer; the size that is needed, always
void lookup(World& w)
{
    Vector v(w, FI_AV_TABLE);
    fi_addr_t place = 0;
    CHECK(w, v.insert(0, &place) == 1);
    unsigned char back[64];
    std::size_t size = sizeof back;
    CHECK(w, fi_av_lookup(v.av, place, back, &size) == 0);
    const std::size_t whole = size;
    CHECK(w, whole >= v.length(0) && whole <= sizeof back);
    std::memset(back, 0x5a, sizeof back);
    size = 7;
    (void)fi_av_lookup(v.av, place, back, &size);
    CHECK(w, size == whole);
    CHECK(w, std::memcmp(back, v.name(0), w.ours() ? 7 : 6) == 0); // text may end within
    CHECK(w, back[7] == 0x5a);
    size = 0;
    (void)fi_av_lookup(v.av, place, back, &size);
    CHECK(w, size == whole);
    if (w.ours()) {
        CHECK(w, fi_av_lookup(v.av, FI_ADDR_NOTAVAIL, back, &size) == -FI_EINVAL);
        CHECK(w, fi_av_lookup(v.av, FI_ADDR_UNSPEC - 1, back, &size) == -FI_EINVAL);
    }
}

/// fi_av_straddr: text of an address that need not be in the vector
void text(World& w)
{
    Vector v(w, FI_AV_TABLE);
    char whole[256] = {};
    std::size_t size = sizeof whole;
    CHECK(w, fi_av_straddr(v.av, v.name(0), whole, &size) == whole); // returns the buffer
    const std::size_t length = std::strlen(whole);
    CHECK(w, length > 0 && length < sizeof whole);
    CHECK(w, size == length + 1);
    for (std::size_t i = 0; i < length; ++i)
        CHECK(w, whole[i] >= ' ' && whole[i] <= '~');
    // "If the provided buffer is too small, the results will be truncated."
    char part[256];
    std::memset(part, 'x', sizeof part);
    std::size_t room = 5;
    CHECK(w, fi_av_straddr(v.av, v.name(0), part, &room) == part);
    CHECK(w, room == length + 1);
    CHECK(w, std::memcmp(part, whole, 4) == 0 && part[5] == 'x');
    CHECK(w, part[4] == '\0' || !w.ours());
}

/// RETURN VALUES: the number inserted; FI_ADDR_NOTAVAIL for those that failed; FI_SYNC_ERR
void failures(World& w)
{
    if (w.ranks() < 2)
        return;
    const unsigned spoilt = w.ranks() / 2;
    const Addresses all(w, spoilt);
    Vector v(w, FI_AV_TABLE);
    for (bool told : {false, true}) {
        std::array<fi_addr_t, max_ranks> places{};
        std::array<int, max_ranks> errors;
        errors.fill(-1);
        const int inserted = fi_av_insert(v.av, all.array(), w.ranks(), places.data(), told ? FI_SYNC_ERR : 0,
                                          told ? errors.data() : nullptr);
        CHECK(w, inserted < static_cast<int>(w.ranks()) || !w.ours());
        int good = 0;
        for (unsigned r = 0; r < w.ranks() && inserted >= 0; ++r) {
            good += places[r] != FI_ADDR_NOTAVAIL;
            CHECK(w, !w.ours() || (places[r] == FI_ADDR_NOTAVAIL) == (r == spoilt));
            CHECK(w, !told || (errors[r] == 0) == (places[r] != FI_ADDR_NOTAVAIL));
            CHECK(w, !told || errors[r] >= 0);
            CHECK(w, places[r] == FI_ADDR_NOTAVAIL || r == spoilt || v.holds(places[r], r));
        }
        CHECK(w, good == inserted || inserted < 0);
    }
    if (!w.ours())
        return;
    fi_addr_t place = 0;
    CHECK(w, fi_av_insert(v.av, nullptr, 1, &place, 0, nullptr) == -FI_EINVAL);
}

unsigned next(World& w)
{
    return (w.rank() + 1) % w.ranks();
}
unsigned before(World& w)
{
    return (w.rank() + w.ranks() - 1) % w.ranks();
}

/// One message round the ring, to `to` of the station's vector.
void round_trip(World& w, Station& s, fi_addr_t to, unsigned round)
{
    fill(w.local(), 500, w.rank(), round);
    CHECK(w, s.post([&] {
        return fi_trecv(s.ep(), w.local(4096), 500, w.desc(), FI_ADDR_UNSPEC, round, 0, nullptr);
    }) == 0);
    CHECK(w, s.post([&] { return fi_tsend(s.ep(), w.local(), 500, w.desc(), to, round, nullptr); }) == 0);
    CHECK(w, s.wait(s.rx()).error.err == 0);
    CHECK(w, s.wait(s.tx()).error.err == 0);
    CHECK(w, wrong(w.local(4096), 500, before(w), round) == 0);
    w.barrier();
}

/// fi_av_remove: an address that is gone is invalid until it is inserted again, which is always possible (NOTES)
void removal(World& w)
{
    Station s(w);
    if (!s.opened())
        return;
    fi_addr_t to = s.peer(next(w));
    round_trip(w, s, to, 1);
    for (unsigned round = 2; round < 6; ++round) {
        CHECK(w, fi_av_remove(s.av(), &to, 1, 0) == 0);
        if (w.ours()) {
            unsigned char back[64];
            std::size_t size = sizeof back;
            CHECK(w, fi_av_lookup(s.av(), to, back, &size) == -FI_EINVAL);
            CHECK(w, fi_tsend(s.ep(), w.local(), 8, w.desc(), to, 0, nullptr) == -FI_EINVAL);
            CHECK(w, fi_av_remove(s.av(), &to, 1, 0) == -FI_EINVAL);
            CHECK(w, fi_av_remove(s.av(), &to, 1, FI_MORE) == -FI_EBADFLAGS); // "must be 0"
        }
        w.barrier();
        fi_addr_t again = FI_ADDR_NOTAVAIL;
        CHECK(w, fi_av_insert(s.av(), w.shared().name[next(w)], 1, &again, 0, nullptr) == 1);
        CHECK(w, again == to); // the lowest index that is unused
        to = again;
        w.barrier();
        round_trip(w, s, to, round);
    }
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// "An address is inserted at the lowest index that corresponds to an unused table location"
void lowest_index(World& w)
{
    if (w.ranks() < 3)
        return;
    Vector v(w, FI_AV_TABLE);
    for (unsigned r = 0; r < 3; ++r)
        CHECK(w, v.insert(r, nullptr) == 1);
    std::array<fi_addr_t, 2> gone{1, 0};
    CHECK(w, fi_av_remove(v.av, gone.data(), 2, 0) == 0);
    for (unsigned r : {1u, 0u}) { // not the places they had
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        CHECK(w, v.insert(r, &place) == 1);
        CHECK(w, place == 1 - r && v.holds(place, r));
    }
    CHECK(w, v.holds(2, 2));
}

/// fi_close: "-FI_EBUSY" while an endpoint is bound
void busy(World& w)
{
    Station s(w);
    if (s.opened())
        CHECK(w, fi_close(&s.av()->fid) == -FI_EBUSY);
}

/// An event queue for insertions.
struct Events {
    World& w;
    fid_eq* eq = nullptr;
    explicit Events(World& world) : w(world)
    {
        fi_eq_attr attr{};
        CHECK(w, fi_eq_open(w.fabric(), &attr, &eq, nullptr) == 0);
    }
    Events(const Events&) = delete;
    ~Events() { CHECK(w, eq == nullptr || fi_close(&eq->fid) == 0); }
};

/// FI_EVENT: an error for each address that fails, then one event with the number of the others
void events(World& w)
{
    Events e(w);
    Vector v(w, FI_AV_TABLE, FI_EVENT);
    if (v.av == nullptr || e.eq == nullptr)
        return;
    CHECK(w, v.insert(0, nullptr) == -FI_ENOEQ);
    CHECK(w, !w.ours() || fi_av_bind(v.av, &e.eq->fid, FI_EVENT) < 0); // flags "must be 0"
    CHECK(w, fi_av_bind(v.av, &e.eq->fid, 0) == 0);
    const unsigned spoilt = w.ours() && w.ranks() > 1 ? w.ranks() - 1 : max_ranks;
    const Addresses all(w, spoilt);
    std::array<fi_addr_t, max_ranks> places{};
    int context = 0;
    CHECK(w, fi_av_insert(v.av, all.array(), w.ranks(), places.data(), 0, &context) == 0);
    unsigned errors = 0;
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    CHECK(w, w.until([&] {
        const ssize_t n = fi_eq_read(e.eq, &event, &entry, sizeof entry, 0);
        if (n == sizeof entry)
            return true;
        fi_eq_err_entry error{};
        if (n == -FI_EAVAIL && fi_eq_readerr(e.eq, &error, 0) == sizeof error) {
            CHECK(w, error.fid == &v.av->fid && error.context == &context);
            CHECK(w, error.data == spoilt && error.err > 0);
            errors++;
        }
        return false;
    }));
    CHECK(w, event == FI_AV_COMPLETE && entry.fid == &v.av->fid && entry.context == &context);
    CHECK(w, errors == (spoilt < w.ranks()));
    CHECK(w, entry.data == w.ranks() - errors);
    for (unsigned r = 0; r < w.ranks(); ++r)
        CHECK(w, r == spoilt ? places[r] == FI_ADDR_NOTAVAIL : v.holds(places[r], r));
    CHECK(w, fi_eq_read(e.eq, &event, &entry, sizeof entry, 0) == -FI_EAGAIN);
}

/// fi_av_insertsvc: names as in fi_getinfo(3); an address of FI_ADDR_STR as the node, without a service
void named(World& w)
{
    Vector v(w, FI_AV_TABLE);
    fi_addr_t place = 0;
    int error = -1;
    const char* nowhere = "no-such-host.invalid";
    int inserted = fi_av_insertsvc(v.av, nowhere, "1", &place, 0, nullptr);
    CHECK(w, inserted <= 0);
    if (!w.ours())
        return;
    CHECK(w, inserted == 0 && place == FI_ADDR_NOTAVAIL);
    CHECK(w, fi_av_insertsvc(v.av, nowhere, "1", &place, FI_SYNC_ERR, &error) == 0 && error > 0);
    char name[256];
    std::size_t size = sizeof name;
    (void)fi_av_straddr(v.av, v.name(0), name, &size); // what ours writes is an FI_ADDR_STR
    CHECK(w, fi_av_insertsvc(v.av, name, nullptr, &place, FI_SYNC_ERR, &error) == 1 && error == 0);
    CHECK(w, place == 0 && v.holds(place, 0));
    CHECK(w, fi_av_insertsvc(v.av, name, "1", &place, 0, nullptr) == -FI_EINVAL); // "service ... must be NULL"
    CHECK(w, fi_av_insertsvc(v.av, nullptr, nullptr, &place, 0, nullptr) == -FI_EINVAL);
    CHECK(w, fi_av_insertsym(v.av, nowhere, 2, "1", 2, &place, 0, nullptr) == -FI_ENOSYS);
}

/// The service under which an endpoint of this rank was opened: fi_getinfo(3) with FI_SOURCE
void service(World& w)
{
    if (!w.ours())
        return;
    const std::string own = "pages-av-" + std::to_string(w.rank()) + "-" + std::to_string(w.seed());
    const std::string other = "pages-av-" + std::to_string(next(w)) + "-" + std::to_string(w.seed());
    fi_info* info = nullptr;
    fi_info* hints = fi_dupinfo(&w.info());
    std::free(hints->src_addr);
    hints->src_addr = nullptr;
    hints->src_addrlen = 0;
    CHECK(w, fi_getinfo(FI_VERSION(1, 11), nullptr, own.c_str(), FI_SOURCE, hints, &info) == 0);
    fi_freeinfo(hints);
    Vector v(w, FI_AV_TABLE);
    fid_ep* ep = nullptr;
    CHECK(w, fi_endpoint(w.domain(), info, &ep, nullptr) == 0);
    fi_freeinfo(info);
    CHECK(w, fi_ep_bind(ep, &v.av->fid, 0) == 0 && fi_ep_bind(ep, &w.cq()->fid, FI_TRANSMIT | FI_RECV) == 0);
    CHECK(w, fi_enable(ep) == 0);
    w.shared().name_length[w.rank()] = sizeof w.shared().name[0];
    CHECK(w, fi_getname(&ep->fid, w.shared().name[w.rank()], &w.shared().name_length[w.rank()]) == 0);
    w.barrier();
    fi_addr_t place = FI_ADDR_NOTAVAIL;
    CHECK(w, fi_av_insertsvc(v.av, "localhost", other.c_str(), &place, 0, nullptr) == 1);
    CHECK(w, v.holds(place, next(w)));
    CHECK(w, fi_av_insertsvc(v.av, "localhost", "pages-nobody", &place, 0, nullptr) == 0 && place == FI_ADDR_NOTAVAIL);
    w.barrier();
    CHECK(w, fi_close(&ep->fid) == 0);
}

/// fi_rx_addr with the vector's rx_ctx_bits: the first context of a peer is the peer
void context_bits(World& w)
{
    for (int bits : {0, 1, 4, 12}) {
        Vector v(w, FI_AV_TABLE, 0, bits);
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        if (v.av == nullptr)
            continue;
        for (unsigned r = 0; r < w.ranks(); ++r) {
            CHECK(w, v.insert(r, &place) == 1 && place == r);
            CHECK(w, fi_rx_addr(place, 0, bits) == place);
            CHECK(w, v.holds(fi_rx_addr(place, 0, bits), r));
        }
    }
}

/// USER IDENTIFIERS: refused, or the output of the insertion is what it always is
void user_id(World& w)
{
    Vector v(w, FI_AV_TABLE);
    fi_addr_t place = 4711;
    const int inserted = v.insert(0, &place, FI_AV_USER_ID);
    CHECK(w, inserted < 0 || (inserted == 1 && place == 0 && v.holds(place, 0)) || !w.ours());
}

constexpr Case cases[] = {
    {"attributes", attributes},
    {"shared", shared},
    {"table", table},
    {"several", several},
    {"lookup", lookup},
    {"text", text},
    {"failures", failures},
    {"removal", removal},
    {"lowest_index", lowest_index},
    {"busy", busy},
    {"events", events},
    {"named", named},
    {"service", service},
    {"context_bits", context_bits},
    {"user_id", user_id},
};

} // namespace

const Program program{{.ranks = 3, .caps = FI_TAGGED}, cases};

} // namespace fabtests
