// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every environment variable the core of the simulator reads, checked once (guide 4.3.2; man tofu_sim.7). Once, when
// the process joins its job.
#include "job/environment.h"

#include "clock/credit.h"
#include "clock/factor.h"
#include "job/layout.h"
#include "job/report.h"

#include <utofu.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>

namespace tofu::sim {
namespace {

const char* text_of(const char* name) noexcept
{
    const char* const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? text : nullptr;
}

std::optional<uint64_t> parse_number(const char* text, uint64_t max) noexcept
{
    if (!std::isdigit(static_cast<unsigned char>(*text)))
        return std::nullopt;
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > max)
        return std::nullopt;
    return value;
}

/// Variables of launchers, which are ignored unless they are numbers. A launcher inside another one leaves the outer
/// one's variables in place, so a size is taken only beside a rank of the same launcher.
struct Launcher {
    const char* rank;
    const char* size;
};
constexpr Launcher launchers[] = {{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE"},
                                  {"SLURM_PROCID", "SLURM_NTASKS"}};

std::optional<uint32_t> launcher_number(const char* name) noexcept
{
    const char* const text = text_of(name);
    const auto value = text != nullptr ? parse_number(text, UINT32_MAX - 1) : std::nullopt;
    return value ? std::optional(static_cast<uint32_t>(*value)) : std::nullopt;
}

void read_launcher_numbers(Environment& environment) noexcept
{
    for (const Launcher& launcher : launchers)
        environment.rank = environment.rank ? environment.rank : launcher_number(launcher.rank);
    for (const Launcher& launcher : launchers) {
        const auto size = launcher_number(launcher.size);
        if (!environment.size && environment.rank && launcher_number(launcher.rank) == environment.rank && size &&
            *environment.rank < *size)
            environment.size = size;
    }
}

bool is_job_name(const char* text) noexcept
{
    const size_t length = std::strlen(text);
    if (length == 0 || length > 64 || text[0] == '.')
        return false;
    for (; *text != '\0'; text++)
        if (!std::isalnum(static_cast<unsigned char>(*text)) && std::strchr("._-", *text) == nullptr)
            return false;
    return true;
}

/// What a launcher calls the job may hold anything: keep it recognisable and make it a file name. A long
/// name keeps its end, where launchers put what differs.
void set_launcher_job(char (&job)[65], const char* prefix, const char* text, const char* step = "") noexcept
{
    char whole[256];
    std::snprintf(whole, sizeof whole, "%.120s%s%.100s", text, *step != '\0' ? "." : "", step);
    const size_t length = std::strlen(whole);
    const size_t room = sizeof job - 1 - std::strlen(prefix) - 1;
    std::snprintf(job, sizeof job, "%s-%.*s", prefix, static_cast<int>(room),
                  length > room ? whole + length - room : whole);
    for (char* c = job; *c != '\0'; c++)
        if (!std::isalnum(static_cast<unsigned char>(*c)) && std::strchr("._-", *c) == nullptr)
            *c = '_';
}

/// What MPI_Comm_spawn starts has a namespace of its own, of the family of one mpirun: "prterun-HOST-PID@NUMBER" with
/// Open MPI 5, and up to Open MPI 4 a number whose upper half names the family. The first namespace of a family has
/// number 1. The jobs of a persistent DVM ("prte-HOST-PID@NUMBER") are separate: it is unknown which of them spawned
/// another.
struct Family {
    char name[128];
    bool spawned; ///< by a program of the family
};

std::optional<Family> family_of(const char* name) noexcept
{
    Family family{};
    const char* const at = std::strrchr(name, '@');
    if (std::strncmp(name, "prterun-", 8) == 0 && at != nullptr) {
        const auto number = parse_number(at + 1, UINT32_MAX);
        std::snprintf(family.name, sizeof family.name, "%.*s", static_cast<int>(at - name), name);
        family.spawned = number && *number > 1;
        return number ? std::optional(family) : std::nullopt;
    }
    const auto id = parse_number(name, UINT32_MAX);
    if (!id || *id >> 16 == 0 || text_of("OMPI_COMM_WORLD_RANK") == nullptr)
        return std::nullopt;
    std::snprintf(family.name, sizeof family.name, "%llu", static_cast<unsigned long long>(*id >> 16));
    family.spawned = (*id & 0xffff) > 1;
    return family;
}

/// True if the process was spawned.
bool set_family_job(Environment& environment, const char* prefix, const char* text) noexcept
{
    const auto family = family_of(text);
    set_launcher_job(environment.job, prefix, family ? family->name : text);
    return family && family->spawned;
}

/// True if the process was spawned by a program of the job: then the launcher counts from 0 again.
bool read_launcher_job(Environment& environment) noexcept
{
    if (const char* const text = text_of("PMIX_NAMESPACE"))
        return set_family_job(environment, "pmix", text);
    if (const char* const id = text_of("OMPI_MCA_ess_base_jobid"))
        return set_family_job(environment, "ompi", id);
    if (const char* const slurm = text_of("SLURM_JOB_ID")) {
        const char* const step = text_of("SLURM_STEP_ID");
        set_launcher_job(environment.job, "slurm", slurm, step != nullptr ? step : "");
    } else if (const char* const pmi = text_of("PMI_JOBID")) {
        set_launcher_job(environment.job, "pmi", pmi);
    } else if (const char* const port = text_of("PMI_PORT")) {
        set_launcher_job(environment.job, "pmi", port); // hydra: one port per job
    }
    return false;
}

template <typename Number>
bool take_number(const char* text, uint64_t least, uint64_t most, Number& to) noexcept
{
    const auto value = parse_number(text, most);
    if (!value || *value < least)
        return false;
    to = static_cast<uint32_t>(*value); // none of them has more bits
    return true;
}

bool take_entries(const char* text, uint32_t& to) noexcept
{
    const auto entries = parse_mrq_entries(text);
    to = entries.value_or(to);
    return entries.has_value();
}

/// "0 or higher" (guide 4.3.2.1): more than there can be is as many as there are.
bool take_cqs(const char* text, uint32_t& to) noexcept
{
    if (text[std::strspn(text, "0123456789")] != '\0')
        return false;
    to = static_cast<uint32_t>(parse_number(text, UINT32_MAX).value_or(UINT32_MAX));
    return true;
}

constexpr uint64_t most_processes = uint64_t{262144} * cqs_per_node; ///< of the largest network

/// What users set. Each once, here and in man/tofu_sim.7; `take` says whether the value may be.
struct Variable {
    const char* name;
    bool (*take)(Environment& environment, const char* text) noexcept;
    const char* expected;
};

constexpr Variable variables[] = {
    {"TOFU_SIM_JOB",
     [](Environment& e, const char* text) noexcept {
         std::snprintf(e.job, sizeof e.job, "%s", text);
         return is_job_name(text);
     },
     "use up to 64 letters, digits, '.', '_' and '-', not starting with '.'"},
    {"TOFU_SIM_SHAPE",
     [](Environment& e, const char* text) noexcept {
         const auto units = parse_shape(text);
         e.topology = Topology(units.value_or(e.topology.units()), e.topology.wraps());
         return units.has_value();
     },
     "use units of 2x3x2 nodes along X, Y and Z, such as 1x1x2: 1 to 255 for each axis, and at most 262144 nodes"},
    {"TOFU_SIM_TORUS",
     [](Environment& e, const char* text) noexcept {
         const auto wraps = parse_torus(text);
         e.topology = Topology(e.topology.units(), wraps.value_or(0));
         return wraps.has_value();
     },
     "use the letters x, y and z for the axes that wrap around, such as xz"},
    {"TOFU_SIM_PPN",
     [](Environment& e, const char* text) noexcept { return take_number(text, 1, cqs_per_node, e.ppn); },
     "use the number of processes of a node, 1 to 54"},
    {"TOFU_SIM_RANK",
     [](Environment& e, const char* text) noexcept { return take_number(text, 0, UINT32_MAX - 1, e.rank); },
     "use the number of this process, 0 to 4294967294"},
    {"TOFU_SIM_SIZE",
     [](Environment& e, const char* text) noexcept { return take_number(text, 1, most_processes, e.size); },
     "use the number of processes, 1 to 14155776"},
    {"TOFU_SIM_CHAOS",
     [](Environment& e, const char* text) noexcept {
         e.chaos = parse_chaos(text);
         return e.chaos.has_value();
     },
     chaos_expected},
    {"TOFU_SIM_TRACE",
     [](Environment& e, const char* text) noexcept {
         return std::snprintf(e.trace, sizeof e.trace, "%s", text) < static_cast<int>(sizeof e.trace);
     },
     "use a directory, or a file name of up to 255 letters, optionally with %r (rank), %p (process) and %j (job)"},
    {"TOFU_SIM_TRACE_MIB",
     [](Environment& e, const char* text) noexcept { return take_number(text, 1, 1 << 20, e.trace_mib); },
     "use the maximal size of a process's trace in MiB, 1 to 1048576"},
    {"TOFU_SIM_CLOCK",
     [](Environment& e, const char* text) noexcept {
         for (const ClockMode mode : {ClockMode::tofud, ClockMode::exact})
             e.clock = std::strcmp(text, name_of(mode)) == 0 ? mode : e.clock;
         return e.clock != ClockMode::none;
     },
     "use tofud for a virtual clock with the times of Tofu-D, exact for a virtual clock that also orders the "
     "processes, or leave it empty"},
    {"TOFU_SIM_CPU",
     [](Environment& e, const char* text) noexcept {
         const auto factor = parse_factor(text);
         e.cpu_permille = factor.value_or(0);
         return factor.has_value();
     },
     factor_expected},
    {"TOFU_SIM_BIND",
     [](Environment& e, const char* text) noexcept {
         e.one_processor = std::strcmp(text, "one") == 0;
         return e.one_processor || std::strcmp(text, "none") == 0;
     },
     "use one (in exact mode, all threads that call uTofu run on one processor) or none (they stay where they are)"},
    {"TOFU_SIM_CHANNEL_BUFFER",
     [](Environment& e, const char* text) noexcept {
         return take_number(text, 0, most_channel_buffer, e.channel_buffer);
     },
     channel_buffer_expected},
    {"TOFU_SIM_CQS",
     [](Environment& e, const char* text) noexcept {
         constexpr const char* names[] = {"shares", "refuse", "meet"};
         const auto named = std::find_if(std::begin(names), std::end(names),
                                         [text](const char* name) { return std::strcmp(name, text) == 0; });
         e.cq_sharing = static_cast<CqSharing>(named - std::begin(names));
         return named != std::end(names);
     },
     "use shares (each process of a node has CQs of its own), or refuse or meet (CQs are not assigned to processes)"},
    {"UTOFU_NUM_MRQ_ENTRIES",
     [](Environment& e, const char* text) noexcept { return take_entries(text, e.mrq_entries); },
     "use a number of entries, 2048 (2Ki) to 2097152 (2Mi)"},
    {"UTOFU_NUM_MRQ_ENTRIES_SESSION",
     [](Environment& e, const char* text) noexcept { return take_entries(text, e.mrq_entries_session); },
     "use a number of entries, 2048 (2Ki) to 2097152 (2Mi)"},
    {"UTOFU_NUM_EXCLUSIVE_CQS",
     [](Environment& e, const char* text) noexcept { return take_cqs(text, e.exclusive_cqs); },
     "use a number of CQs, 0 or higher"},
    {"UTOFU_NUM_SESSION_MODE_CQS",
     [](Environment& e, const char* text) noexcept { return e.keep_session_cqs = take_cqs(text, e.session_cqs); },
     "use a number of CQs, 0 or higher"},
    {"UTOFU_SWAP_PROTECT",
     [](Environment& e, const char* text) noexcept { // whatever is not 0 stands for 1 (guide 4.3.2.5)
         e.swap_protect = std::strcmp(text, "0") != 0;
         return true;
     },
     ""},
};

} // namespace

const char* name_of(ClockMode mode) noexcept
{
    switch (mode) {
    case ClockMode::none: return "none";
    case ClockMode::tofud: return "tofud";
    case ClockMode::exact: return "exact";
    }
    return "?";
}

std::optional<uint32_t> parse_mrq_entries(const char* text) noexcept
{
    if (!std::isdigit(static_cast<unsigned char>(*text)))
        return std::nullopt;
    char* end = nullptr;
    uint64_t value = std::strtoull(text, &end, 10); // saturates: still the nearest
    unsigned shift = 0;
    if ((end[0] | 0x20) == 'k' && (end[1] | 0x20) == 'i' && end[2] == '\0')
        shift = 10;
    else if ((end[0] | 0x20) == 'm' && (end[1] | 0x20) == 'i' && end[2] == '\0')
        shift = 20;
    else if (*end != '\0')
        return std::nullopt;
    value = value > UINT64_MAX >> shift ? UINT64_MAX : value << shift;
    static constexpr uint32_t allowed[] = {2048, 8192, 32768, 131072, 524288, 2097152};
    uint32_t best = allowed[0];
    uint64_t best_distance = UINT64_MAX;
    for (const uint32_t candidate : allowed) {
        const uint64_t distance = value > candidate ? value - candidate : candidate - value;
        if (distance <= best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

int Environment::read() noexcept
{
    const bool spawned = read_launcher_job(*this);
    launched = std::strcmp(job, "default") != 0 && text_of("TOFU_SIM_JOB") == nullptr;
    if (!spawned) // otherwise processes of the family's first namespace have these numbers
        read_launcher_numbers(*this);
    states_rank = text_of("TOFU_SIM_RANK") != nullptr;
    states_size = text_of("TOFU_SIM_SIZE") != nullptr;
    for (const Variable& variable : variables) {
        if (const char* const text = text_of(variable.name); text != nullptr && !variable.take(*this, text)) {
            report("%s=%.80s: %s", variable.name, text, variable.expected);
            return UTOFU_ERR_INVALID_ARG;
        }
    }
    if (states_size && rank && *rank >= *size) {
        report("%s=%u with TOFU_SIM_SIZE=%u: the numbers of processes are 0 to %u; set TOFU_SIM_SIZE to the number of "
               "all processes, or correct the number of this one",
               states_rank ? "TOFU_SIM_RANK" : "the launcher's rank", *rank, *size, *size - 1);
        return UTOFU_ERR_INVALID_ARG;
    }
    if (clock == ClockMode::tofud && chaos) {
        report("TOFU_SIM_CLOCK=tofud and TOFU_SIM_CHAOS: the adversarial mode has no times; unset one of them, or set "
               "TOFU_SIM_CLOCK=exact, in which the seed decides everything");
        return UTOFU_ERR_INVALID_ARG;
    }
    if (clock == ClockMode::exact) {
        if (!size) {
            report("TOFU_SIM_CLOCK=exact: the clock starts when all processes have joined; set their number in "
                   "TOFU_SIM_SIZE");
            return UTOFU_ERR_INVALID_ARG;
        }
        states_size = true; // also a launcher's: so many processes have to join
    }
    return UTOFU_SUCCESS;
}

} // namespace tofu::sim
