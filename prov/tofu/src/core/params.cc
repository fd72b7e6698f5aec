// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See params.h.
#include "core/params.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu {
namespace {

/// What a variable may be.
enum class Kind : std::uint8_t {
    number,       ///< least to most
    power_of_two, ///< of these
    toggle,       ///< one of the words for on and off
    cpus,         ///< numbers of processors and ranges of them, in hwloc's list syntax
    library       ///< utofu/library tries it, and says what is wrong with it
};

struct Variable {
    const char* name; ///< as libfabric's functions take it
    const char* full; ///< as the user writes it
    Kind kind;
    std::size_t least, most;
    const char* help;
};

// auto and on have the same effect: a feature that is not available is off, and a log line says so.
constexpr std::string_view words_for_on[] = {"auto", "on", "yes", "1"};
constexpr std::string_view words_for_off[] = {"off", "no", "0"};

template <std::size_t count>
bool is_one_of(const std::string_view (&words)[count], std::string_view text) noexcept
{
    return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

// All are read as text, since libfabric converts an invalid number to 0.
constexpr Variable variables[] = {
    {"backend", "FI_TOFU_BACKEND", Kind::library, 0, 0,
     "The uTofu library: auto, utofu, sim or the path of a library. auto uses the machine's library if a Tofu "
     "interface is present. Otherwise it uses the simulator if FI_PROVIDER is tofu alone, and else no library "
     "(default: auto)"},
    {"rings", "FI_TOFU_RINGS", Kind::number, 1, 65536,
     "Rings in an endpoint's receive area, 1 to 65536. It limits how many peers have a ring at a time. Memory is "
     "allocated as peers get rings (default: 256)"},
    {"ring_slots", "FI_TOFU_RING_SLOTS", Kind::power_of_two, 16, 4096,
     "Slots of 256 bytes of a ring, a power of two from 16 to 4096. The longest eager message is a quarter of the "
     "ring, and at most 8 KiB (default: 128)"},
    {"ppn", "FI_TOFU_PPN", Kind::number, 1, 16,
     "Processes of a node, 1 to 16. Needed if the launcher does not assign control queues to processes (no MPI_Init of "
     "the vendor's MPI). Each process takes an equal share of the TNIs for itself, and processes beyond this number "
     "fail (default: all processes use all TNIs in turn)"},
    {"tnis", "FI_TOFU_TNIS", Kind::number, 1, 8,
     "Number of TNIs that the long transfers of an endpoint may use at a time, 1 to 8. Beyond its own TNI, an endpoint "
     "uses TNIs that no process of the node posts from. Each takes a control queue (default: all of these TNIs)"},
    {"numa", "FI_TOFU_NUMA", Kind::toggle, 0, 0,
     "Query hwloc for the topology of the node, and place memory, TNIs and the thread of automatic progress by it: "
     "auto, on or off (default: auto)"},
    {"progress_cpus", "FI_TOFU_PROGRESS_CPUS", Kind::cpus, 0, CPU_SETSIZE - 1,
     "Processors for the threads of automatic progress, as hwloc lists them: 0,48-51 or 48- (default: allowed "
     "processors to which no thread of the process is bound, assistant cores first)"},
    {"unexpected_bytes", "FI_TOFU_UNEXPECTED_BYTES", Kind::number, 0, std::size_t{1} << 48,
     "Limit, up to 2^48 bytes, of an endpoint's memory for messages that arrive before their receive is posted. Above "
     "it all senders get -FI_EAGAIN, also the sender of a message that the program waits for (default: no limit but "
     "memory)"},
    {"linger", "FI_TOFU_LINGER", Kind::number, 0, 86400,
     "Seconds, 0 to 86400, that the close of a domain waits while live receivers fetch none of the messages that were "
     "reported as sent (default: 300)"},
    {"stats", "FI_TOFU_STATS", Kind::number, 0, 1,
     "1: print the statistics of a domain when it is closed; fi_tofu(7), STATISTICS (default: 0)"},
    {"mr_cache", "FI_TOFU_MR_CACHE", Kind::toggle, 0, 0,
     "Cache registrations of local buffers: auto or on (if libucm of UCX can observe changes of the memory), or off "
     "(default: auto)"},
    {"gates", "FI_TOFU_GATES", Kind::toggle, 0, 0,
     "Barrier gates for collective groups: auto or on (if all members of a group get some), or off (default: auto)"},
};

/// Null: not set, or empty.
const char* text_of(const char* name) noexcept
{
    char* value = nullptr;
    return fi_param_get_str(&provider, name, &value) == 0 && value != nullptr && *value != '\0' ? value : nullptr;
}

/// "0,48-51", and "48-" for all from there on; spaces part them as well. False: anything else, or none.
bool read_cpus(const char* text, node::Processors& cpus) noexcept
{
    const char* const end = text + std::strlen(text);
    cpus.reset();
    for (;; text++) {
        unsigned first = 0;
        std::from_chars_result got = std::from_chars(text, end, first);
        unsigned last = first;
        if (got.ec == std::errc{} && *got.ptr == '-') {
            if (const char next = got.ptr[1]; next == '\0' || next == ',' || next == ' ')
                last = CPU_SETSIZE - 1, got.ptr++;
            else
                got = std::from_chars(got.ptr + 1, end, last);
        }
        if (got.ec != std::errc{} || first > last || last >= cpus.size())
            return false;
        for (unsigned cpu = first; cpu <= last; cpu++)
            cpus.set(cpu);
        if (got.ptr == end)
            return true;
        if (*got.ptr != ',' && *got.ptr != ' ')
            return false;
        text = got.ptr;
    }
}

bool is_legal(const Variable& variable, const char* text, std::size_t& number) noexcept
{
    switch (variable.kind) {
    case Kind::library: return true;
    case Kind::cpus: {
        node::Processors cpus;
        return read_cpus(text, cpus);
    }
    case Kind::toggle: return is_one_of(words_for_on, text) || is_one_of(words_for_off, text);
    case Kind::number:
    case Kind::power_of_two: break;
    }
    if (std::isdigit(static_cast<unsigned char>(*text)) == 0) // strtoull takes signs and spaces
        return false;
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 0);
    number = value;
    return errno == 0 && *end == '\0' && value >= variable.least && value <= variable.most &&
           (variable.kind != Kind::power_of_two || (value & (value - 1)) == 0);
}

/// Null: not set, empty, or not legal.
const char* legal_text_of(const char* name, std::size_t& number) noexcept
{
    for (const Variable& variable : variables)
        if (std::strcmp(variable.name, name) == 0) {
            const char* const text = text_of(name);
            return text != nullptr && is_legal(variable, text, number) ? text : nullptr;
        }
    return nullptr;
}

} // namespace

void define_params() noexcept
{
    for (const Variable& variable : variables)
        fi_param_define(&provider, variable.name, FI_PARAM_STRING, "%s", variable.help);
}

int check_params() noexcept
{
    for (const Variable& variable : variables) {
        const char* const text = text_of(variable.name);
        std::size_t number = 0;
        if (text == nullptr || is_legal(variable, text, number))
            continue;
        if (variable.kind == Kind::cpus)
            warn_user("%s=%.80s: invalid: use processors from 0 to %zu, such as 0,48-51", variable.full, text,
                      variable.most);
        else if (variable.kind == Kind::toggle)
            warn_user("%s=%.80s: invalid: use one of auto, on, yes, 1, off, no, 0", variable.full, text);
        else
            warn_user("%s=%.80s: invalid: use a %s from %zu to %zu", variable.full, text,
                      variable.kind == Kind::number ? "number" : "power of two", variable.least, variable.most);
        return -FI_EINVAL;
    }
    return 0;
}

const char* param_string(const char* name, const char* otherwise) noexcept
{
    std::size_t number = 0;
    const char* const text = legal_text_of(name, number);
    return text != nullptr ? text : otherwise;
}

std::size_t param_size(const char* name, std::size_t otherwise) noexcept
{
    std::size_t number = 0;
    return legal_text_of(name, number) != nullptr ? number : otherwise;
}

bool param_off(const char* name) noexcept
{
    return is_one_of(words_for_off, param_string(name, "auto"));
}

bool param_cpus(const char* name, node::Processors& cpus) noexcept
{
    std::size_t number = 0;
    const char* const text = legal_text_of(name, number);
    return text != nullptr && read_cpus(text, cpus);
}

} // namespace tofu
