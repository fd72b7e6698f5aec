// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Competing streams share TNIs and links evenly, by the max-min model of SimGrid.
#include "replay/fluid.h"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <sys/resource.h>
#include <unordered_map>
#include <utility>

namespace tofu::sim::replay {
namespace {

namespace sg = simgrid;
using Links = std::vector<sg::kernel::resource::StandardLinkImpl*>;

/// Its second is a millisecond here: SimGrid resolves a billionth, here a picosecond, and a double still
/// knows that of a run of minutes.
constexpr double unit = 1e9;

/// A zone of two hosts, with the route that was laid down last.
class Zone : public sg::kernel::routing::NetZoneImpl {
  public:
    Zone() : NetZoneImpl("tofu") {}
    void get_local_route(const sg::kernel::routing::NetPoint*, const sg::kernel::routing::NetPoint*,
                         sg::kernel::routing::Route* into, double*) override
    {
        into->link_list_ = laid;
    }
    void get_graph(const s_xbt_graph_t*, std::map<std::string, xbt_node_t, std::less<>>*,
                   std::map<std::string, xbt_edge_t, std::less<>>*) override
    {
    }
    Links laid;
};

class SimGridFluid final : public Fluid {
  public:
    explicit SimGridFluid(size_t links) : engine_(make_engine()), zone_(new Zone)
    {
        zone_->set_parent(nullptr);
        here_ = add_host("here");
        there_ = add_host("there");
        for (size_t i = 0; i < links; i++)
            spare_.push_back(add_link(i));
        sg::s4u::Comm::on_completion_cb([this](const auto& activity) { end(&activity); });
    }

    bool claim(uint32_t id, const std::vector<uint32_t>& resources) override
    {
        std::vector<uint32_t> got;
        for (const uint32_t resource : resources) {
            const auto [place, is_new] = used_.try_emplace(resource);
            if (is_new) {
                if (spare_.empty()) {
                    used_.erase(place);
                    give_back(got);
                    return false;
                }
                place->second.link = spare_.back();
                spare_.pop_back();
            }
            place->second.streams++;
            got.push_back(resource);
        }
        claims_[id] = std::move(got);
        return true;
    }

    void start(uint32_t id, Picoseconds work) override
    {
        zone_->laid.clear();
        for (const uint32_t resource : claims_.at(id))
            zone_->laid.push_back(used_.at(resource).link);
        auto comm = sg::s4u::Comm::sendto_init(here_, there_);
        comm->set_payload_size(work);
        streams_[comm.get()] = {comm, id};
        comm->start();
    }

    void set_alarm(Picoseconds when) override
    {
        const double at = std::max(static_cast<double>(when) / unit, sg::s4u::Engine::get_clock());
        sg::kernel::timer::Timer::set(at, [this, when] { rang(when); });
    }

    void run() override { engine_.run(); }
    [[nodiscard]] const char* version() const noexcept override { return version_.c_str(); }

  private:
    /// No model of TCP: no window, no share for headers, no traffic of acknowledgements.
    static sg::s4u::Engine make_engine()
    {
        // It visits all streams that depend on each other in a recursion.
        rlimit stack{};
        if (::getrlimit(RLIMIT_STACK, &stack) == 0) {
            stack.rlim_cur = std::min<rlim_t>(stack.rlim_max, rlim_t{120} << 20);
            (void)::setrlimit(RLIMIT_STACK, &stack);
        }
        static std::string words[] = {"tofu-sim",
                                      "--log=root.threshold:critical",
                                      "--cfg=network/model:CM02",
                                      "--cfg=network/TCP-gamma:0",
                                      "--cfg=network/crosstraffic:0",
                                      "--cfg=network/weight-S:0",
                                      "--cfg=network/latency-factor:1",
                                      "--cfg=network/bandwidth-factor:1"};
        std::vector<char*> list;
        for (std::string& word : words)
            list.push_back(word.data());
        int count = static_cast<int>(list.size());
        list.push_back(nullptr);
        return sg::s4u::Engine(&count, list.data());
    }

    sg::s4u::Host* add_host(const char* name)
    {
#if SIMGRID_VERSION >= 40000
        return zone_->get_iface()->add_host(name, 1.0);
#else
        return zone_->get_iface()->create_host(name, 1.0);
#endif
    }

    sg::kernel::resource::StandardLinkImpl* add_link(size_t number)
    {
#if SIMGRID_VERSION >= 40000
        return zone_->get_iface()->add_link(std::to_string(number), unit)->get_impl();
#else
        return zone_->get_iface()->create_link(std::to_string(number), unit)->get_impl();
#endif
    }

    void give_back(const std::vector<uint32_t>& resources)
    {
        for (const uint32_t resource : resources) {
            const auto used = used_.find(resource);
            if (--used->second.streams == 0) {
                spare_.push_back(used->second.link);
                used_.erase(used);
            }
        }
    }

    void end(const sg::s4u::Activity* activity)
    {
        const auto found = streams_.find(activity);
        if (found == streams_.end())
            return;
        const Stream stream = found->second; // the last reference may be this one
        streams_.erase(found);
        give_back(claims_.at(stream.id));
        claims_.erase(stream.id);
        ended(stream.id, static_cast<Picoseconds>(std::llround(sg::s4u::Engine::get_clock() * unit)));
    }

    struct Used {
        sg::kernel::resource::StandardLinkImpl* link = nullptr;
        uint32_t streams = 0;
    };
    struct Stream {
        sg::s4u::CommPtr comm;
        uint32_t id;
    };

    const std::string version_ = std::to_string(SIMGRID_VERSION_MAJOR) + "." + std::to_string(SIMGRID_VERSION_MINOR);
    sg::s4u::Engine engine_;
    Zone* zone_; ///< the engine's
    sg::s4u::Host* here_ = nullptr;
    sg::s4u::Host* there_ = nullptr;
    std::unordered_map<uint32_t, Used> used_; ///< by resource
    Links spare_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> claims_; ///< by stream
    std::unordered_map<const sg::s4u::Activity*, Stream> streams_;
};

} // namespace

} // namespace tofu::sim::replay

extern "C" [[gnu::visibility("default")]] tofu::sim::replay::Fluid* tofu_sim_make_fluid(size_t links);
tofu::sim::replay::Fluid* tofu_sim_make_fluid(size_t links)
{
    return new tofu::sim::replay::SimGridFluid(links);
}
