// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A run as OTF2. See exports.h.
//
// A node is a node of the system tree, a process a location group, a thread a location. Calls, waits and computation
// are regions, transfers RMA operations of one window that all threads are members of.
#include "traces/exports.h"

#include "config.h"

#ifdef HAVE_OTF2
#include <otf2/otf2.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unistd.h>
#endif

namespace tofu::sim::tools {

#ifndef HAVE_OTF2

std::string write_otf2(const trace::Run&, const std::string&)
{
    return "this tofu-sim was built without OTF2: install libopen-trace-format2-dev, configure and build again";
}

#else

namespace {

using namespace trace;

enum RegionNumber : uint32_t { compute_region, wait_region, first_op_region = 1 }; ///< and Op, which begins with 1

enum class Kind : uint8_t { enter, operation, arrived, complete, leave };

struct OtfEvent {
    uint64_t time;
    uint64_t sequence; ///< among those of one time
    Kind kind;
    uint32_t region;
    uint32_t transfer;
};

struct Span {
    uint64_t began;
    uint64_t ended;
    uint32_t region;
    uint32_t transfer; ///< or `no_index`
};

OTF2_FlushType before_flush(void*, OTF2_FileType, OTF2_LocationRef, void*, bool)
{
    return OTF2_FLUSH;
}
OTF2_TimeStamp after_flush(void*, OTF2_FileType, OTF2_LocationRef)
{
    return 0;
}

class Otf2Writer {
  public:
    explicit Otf2Writer(const Run& run) : run_(run) {}

    bool write(const std::string& directory)
    {
        collect();
        archive_ = OTF2_Archive_Open(directory.c_str(), "run", OTF2_FILEMODE_WRITE, 1 << 20, 4 << 20,
                                     OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
        if (archive_ == nullptr)
            return false;
        static constexpr OTF2_FlushCallbacks flush = {.otf2_pre_flush = before_flush, .otf2_post_flush = after_flush};
        note(OTF2_Archive_SetFlushCallbacks(archive_, &flush, nullptr));
        note(OTF2_Archive_SetSerialCollectiveCallbacks(archive_));
        note(OTF2_Archive_OpenEvtFiles(archive_));
        std::vector<uint64_t> counts;
        for (uint32_t location = 0; location < locations_.size(); location++)
            counts.push_back(write_events(location));
        note(OTF2_Archive_CloseEvtFiles(archive_));
        note(OTF2_Archive_OpenDefFiles(archive_));
        for (uint32_t location = 0; location < locations_.size(); location++) {
            OTF2_DefWriter* const writer = OTF2_Archive_GetDefWriter(archive_, location);
            note(OTF2_Archive_CloseDefWriter(archive_, writer));
        }
        note(OTF2_Archive_CloseDefFiles(archive_));
        write_definitions(counts);
        note(OTF2_Archive_Close(archive_));
        return good_;
    }

  private:
    using Place = std::pair<uint32_t, uint32_t>; ///< process and thread

    void note(OTF2_ErrorCode code) { good_ = good_ && code == OTF2_SUCCESS; }

    void collect()
    {
        for (const Computation& span : run_.computations)
            spans_[{span.process, span.thread}].push_back({span.began, span.ended, compute_region, no_index});
        for (const Wait& wait : run_.waits)
            spans_[{wait.process, wait.thread}].push_back({wait.began, wait.ended, wait_region, no_index});
        for (uint32_t i = 0; i < run_.transfers.size(); i++) {
            const Transfer& transfer = run_.transfers[i];
            spans_[{transfer.from, transfer.thread}].push_back(
                {transfer.posted, transfer.returned, first_op_region + static_cast<uint32_t>(transfer.op), i});
        }
        first_location_.resize(run_.processes.size());
        for (uint32_t process = 0; process < run_.processes.size(); process++)
            spans_.try_emplace({process, 0}); // no process has thread 0: it takes the arrivals
        for (const auto& [place, spans] : spans_) {
            if (place.second == 0)
                first_location_[place.first] = static_cast<uint32_t>(locations_.size());
            locations_.push_back(place);
        }
    }

    /// Regions of a thread follow each other; completions fall between, or into them.
    [[nodiscard]] std::vector<OtfEvent> items_of(const Place& place)
    {
        std::vector<Span>& spans = spans_[place];
        std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.began < b.began; });
        std::vector<OtfEvent> items;
        uint64_t last = 0, sequence = 0;
        for (const Span& span : spans) {
            const uint64_t began = std::max(span.began, last);
            last = std::max(span.ended, began);
            items.push_back({began, sequence, Kind::enter, span.region, span.transfer});
            if (span.transfer != no_index && is_visible(run_.transfers[span.transfer])) {
                const Transfer& transfer = run_.transfers[span.transfer];
                items.push_back({began, sequence + 1, Kind::operation, span.region, span.transfer});
                if (transfer.arrived != 0) {
                    const uint64_t arrived = std::max(transfer.arrived, began);
                    items.push_back({arrived, sequence + 2, Kind::arrived, span.region, span.transfer});
                    items.push_back(
                        {std::max(arrived, last), sequence + 3, Kind::complete, span.region, span.transfer});
                }
            }
            items.push_back({last, sequence + 4, Kind::leave, span.region, span.transfer});
            sequence += 5;
        }
        std::stable_sort(items.begin(), items.end(), [](const OtfEvent& a, const OtfEvent& b) {
            return std::pair(a.time, a.sequence) < std::pair(b.time, b.sequence);
        });
        return items;
    }

    [[nodiscard]] static bool is_visible(const Transfer& transfer) noexcept
    {
        return transfer.to != no_index && transfer.op != Op::nop;
    }

    uint64_t write_events(uint32_t location)
    {
        OTF2_EvtWriter* const writer = OTF2_Archive_GetEvtWriter(archive_, location);
        const auto items = items_of(locations_[location]);
        for (const OtfEvent& item : items) {
            switch (item.kind) {
            case Kind::enter: note(OTF2_EvtWriter_Enter(writer, nullptr, item.time, item.region)); break;
            case Kind::leave: note(OTF2_EvtWriter_Leave(writer, nullptr, item.time, item.region)); break;
            case Kind::operation: write_operation(writer, item); break;
            case Kind::arrived:
                note(OTF2_EvtWriter_RmaOpCompleteRemote(writer, nullptr, item.time, 0, item.transfer));
                break;
            case Kind::complete:
                note(OTF2_EvtWriter_RmaOpCompleteNonBlocking(writer, nullptr, item.time, 0, item.transfer));
                break;
            }
        }
        note(OTF2_Archive_CloseEvtWriter(archive_, writer));
        return items.size();
    }

    void write_operation(OTF2_EvtWriter* writer, const OtfEvent& item)
    {
        const Transfer& transfer = run_.transfers[item.transfer];
        const uint32_t remote = first_location_[transfer.to];
        switch (transfer.op) {
        case Op::put:
        case Op::put_piggyback:
            note(OTF2_EvtWriter_RmaPut(writer, nullptr, item.time, 0, remote, transfer.bytes, item.transfer));
            break;
        case Op::get:
            note(OTF2_EvtWriter_RmaGet(writer, nullptr, item.time, 0, remote, transfer.bytes, item.transfer));
            break;
        case Op::armw4:
        case Op::armw8:
        case Op::cswap4:
        case Op::cswap8: {
            const bool swap = transfer.op == Op::cswap4 || transfer.op == Op::cswap8;
            const uint64_t bytes =
                uint64_t{transfer.op == Op::armw4 || transfer.op == Op::cswap4 ? 4u : 8u} * transfer.count;
            note(OTF2_EvtWriter_RmaAtomic(writer, nullptr, item.time, 0, remote,
                                          swap ? OTF2_RMA_ATOMIC_TYPE_COMPARE_AND_SWAP
                                               : OTF2_RMA_ATOMIC_TYPE_FETCH_AND_ACCUMULATE,
                                          bytes, bytes, item.transfer));
            break;
        }
        case Op::nop: break;
        }
    }

    uint32_t text(const std::string& value)
    {
        const uint32_t reference = strings_++;
        note(OTF2_GlobalDefWriter_WriteString(definitions_, reference, value.c_str()));
        return reference;
    }

    void write_definitions(const std::vector<uint64_t>& counts)
    {
        definitions_ = OTF2_Archive_GetGlobalDefWriter(archive_);
        note(OTF2_GlobalDefWriter_WriteClockProperties(definitions_, 1'000'000'000, 0, run_.length + 1,
                                                       OTF2_UNDEFINED_TIMESTAMP));
        const uint32_t empty = text("");
        write_regions(empty);
        const uint32_t root_class = text("machine"), node_class = text("node"), root_name = text(run_.job);
        note(OTF2_GlobalDefWriter_WriteSystemTreeNode(definitions_, 0, root_name, root_class,
                                                      OTF2_UNDEFINED_SYSTEM_TREE_NODE));
        std::map<uint32_t, uint32_t> nodes;
        for (uint32_t i = 0; i < run_.processes.size(); i++) {
            const Process& process = run_.processes[i];
            const auto [node, is_new] = nodes.try_emplace(process.node, static_cast<uint32_t>(nodes.size() + 1));
            if (is_new) {
                note(OTF2_GlobalDefWriter_WriteSystemTreeNode(
                    definitions_, node->second, text(node_label(run_.topology, process.node)), node_class, 0));
            }
            note(OTF2_GlobalDefWriter_WriteLocationGroup(
                definitions_, i, text("rank " + process_label(run_, i) + " " + process.name),
                OTF2_LOCATION_GROUP_TYPE_PROCESS, node->second, OTF2_UNDEFINED_LOCATION_GROUP));
        }
        std::vector<uint64_t> members;
        for (uint32_t i = 0; i < locations_.size(); i++) {
            const auto [process, thread] = locations_[i];
            const std::string name = thread == 0 ? std::string("target") : "thread " + std::to_string(thread);
            note(OTF2_GlobalDefWriter_WriteLocation(definitions_, i, text(name), OTF2_LOCATION_TYPE_CPU_THREAD,
                                                    counts[i], process));
            members.push_back(i);
        }
        const auto count = static_cast<uint32_t>(members.size());
        note(OTF2_GlobalDefWriter_WriteGroup(definitions_, 0, text("threads"), OTF2_GROUP_TYPE_COMM_LOCATIONS,
                                             OTF2_PARADIGM_SHMEM, OTF2_GROUP_FLAG_NONE, count, members.data()));
        note(OTF2_GlobalDefWriter_WriteGroup(definitions_, 1, text("all"), OTF2_GROUP_TYPE_COMM_GROUP,
                                             OTF2_PARADIGM_SHMEM, OTF2_GROUP_FLAG_NONE, count, members.data()));
        note(OTF2_GlobalDefWriter_WriteComm(definitions_, 0, text("job"), 1, OTF2_UNDEFINED_COMM, OTF2_COMM_FLAG_NONE));
        note(OTF2_GlobalDefWriter_WriteRmaWin(definitions_, 0, text("uTofu"), 0, OTF2_RMA_WIN_FLAG_NONE));
        note(OTF2_Archive_CloseGlobalDefWriter(archive_, definitions_));
    }

    void write_regions(uint32_t empty)
    {
        const auto region = [&](uint32_t number, const char* name, OTF2_RegionRole role) {
            const uint32_t reference = text(name);
            note(OTF2_GlobalDefWriter_WriteRegion(definitions_, number, reference, reference, empty, role,
                                                  OTF2_PARADIGM_SHMEM, OTF2_REGION_FLAG_NONE, empty, 0, 0));
        };
        region(compute_region, "compute", OTF2_REGION_ROLE_FUNCTION);
        region(wait_region, "wait", OTF2_REGION_ROLE_FUNCTION);
        for (uint8_t op = static_cast<uint8_t>(Op::put); op <= static_cast<uint8_t>(Op::nop); op++) {
            const bool atomic = op >= static_cast<uint8_t>(Op::armw4) && op <= static_cast<uint8_t>(Op::cswap8);
            region(first_op_region + op, op_name(Op{op}),
                   atomic ? OTF2_REGION_ROLE_ATOMIC : OTF2_REGION_ROLE_DATA_TRANSFER);
        }
    }

    const Run& run_;
    OTF2_Archive* archive_ = nullptr;
    OTF2_GlobalDefWriter* definitions_ = nullptr;
    bool good_ = true;
    uint32_t strings_ = 0;
    std::map<Place, std::vector<Span>> spans_;
    std::vector<Place> locations_;
    std::vector<uint32_t> first_location_; ///< by process
};

} // namespace

std::string write_otf2(const Run& run, const std::string& directory)
{
    if (::access(directory.c_str(), F_OK) == 0)
        return directory + " exists; remove it or use another name";
    return Otf2Writer(run).write(directory) ? std::string() : "cannot write all of " + directory + ": see above";
}

#endif

} // namespace tofu::sim::tools
