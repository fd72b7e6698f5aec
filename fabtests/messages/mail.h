// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_msg(3) and fi_tagged(3) say much the same: one set of checks for both, over one face of both.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "../common/bytes.h"
#include "../common/station.h"

namespace fabtests {

/// fi_send, fi_sendv, fi_sendmsg and their like.
enum class Form { plain, v, msg };
inline constexpr Form forms[] = {Form::plain, Form::v, Form::msg};

/// One process's letter box. Tags are ignored where the calls have none.
class Mail {
  public:
    Mail(World& world, bool tagged, const StationOptions& options = {})
        : w(world), station(world, options), tagged_(tagged)
    {
    }

    World& w;
    Station station;

    unsigned next() const { return (w.rank() + 1) % w.ranks(); }
    unsigned before() const { return (w.rank() + w.ranks() - 1) % w.ranks(); }
    /// FI_MSG or FI_TAGGED, as entries have it.
    std::uint64_t kind() const { return tagged_ ? FI_TAGGED : FI_MSG; }
    /// Two halves of the registered memory.
    unsigned char* out(std::size_t offset = 0) { return w.local(offset); }
    unsigned char* in(std::size_t offset = 0) { return w.local(half + offset); }
    static constexpr std::size_t half = std::size_t{2} << 20;

    // Each repeats the call while it is refused with -FI_EAGAIN. `flags` count for Form::msg only.
    ssize_t send(Form form, const std::vector<iovec>& pieces, fi_addr_t to, std::uint64_t tag, void* context,
                 std::uint64_t flags = FI_COMPLETION, std::uint64_t data = 0);
    ssize_t send(const void* buffer, std::size_t length, unsigned to, std::uint64_t tag = 0, void* context = nullptr);
    ssize_t send_data(const void* buffer, std::size_t length, std::uint64_t data, unsigned to, std::uint64_t tag,
                      void* context);
    ssize_t inject(const void* buffer, std::size_t length, unsigned to, std::uint64_t tag);
    ssize_t inject_data(const void* buffer, std::size_t length, std::uint64_t data, unsigned to, std::uint64_t tag);
    ssize_t recv(Form form, const std::vector<iovec>& pieces, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore,
                 void* context, std::uint64_t flags = FI_COMPLETION);
    ssize_t recv(void* buffer, std::size_t length, std::uint64_t tag = 0, void* context = nullptr);

    Entry sent() { return station.wait(station.tx()); }
    Entry received() { return station.wait(station.rx()); }
    /// Nothing is left in either queue.
    bool quiet() { return station.quiet(station.tx()) && station.quiet(station.rx()); }

  private:
    bool tagged_;
};

/// What both pages say; `Tagged` chooses the calls.
template <bool Tagged>
struct Both {
    static void calls(World& world);        ///< each function, each kind of size
    static void inject(World& world);       ///< fi_inject, FI_INJECT
    static void data(World& world);         ///< fi_senddata, fi_injectdata, FI_REMOTE_CQ_DATA
    static void zero(World& world);         ///< empty messages
    static void self(World& world);         ///< messages to oneself
    static void order(World& world);        ///< message boundaries, order of sends
    static void posted_order(World& world); ///< order of posted receives
    static void unexpected(World& world);   ///< sends before receives
    static void many(World& world);         ///< more than any queue holds
    static void truncation(World& world);   ///< messages larger than the receive
    static void cancel(World& world);       ///< fi_cancel
    static void directed(World& world);     ///< FI_DIRECTED_RECV
    static void source(World& world);       ///< FI_SOURCE
    static void selective(World& world);    ///< FI_COMPLETION, FI_SELECTIVE_COMPLETION
    static void levels(World& world);       ///< FI_INJECT_COMPLETE and so on
    static void fence(World& world);        ///< FI_FENCE
    static void limits(World& world);       ///< what is too much
    static void refusals(World& world);     ///< what is not permitted
};

/// The cases of both pages, and those of one of them behind.
template <bool tagged, std::size_t count>
constexpr auto both_and(const Case (&own)[count])
{
    using B = Both<tagged>;
    constexpr Case both[] = {
        {"calls", B::calls},
        {"inject", B::inject},
        {"data", B::data},
        {"zero", B::zero},
        {"self", B::self},
        {"order", B::order},
        {"posted_order", B::posted_order},
        {"unexpected", B::unexpected},
        {"many", B::many},
        {"truncation", B::truncation},
        {"cancel", B::cancel},
        {"directed", B::directed, 2},
        {"source", B::source, 2},
        {"selective", B::selective},
        {"levels", B::levels},
        {"fence", B::fence},
        {"limits", B::limits},
        {"refusals", B::refusals},
    };
    std::array<Case, std::size(both) + count> cases{};
    std::copy(std::begin(own), std::end(own), std::copy(std::begin(both), std::end(both), cases.begin()));
    return cases;
}

} // namespace fabtests
