// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: every environment variable the core of the simulator reads, checked once (guide 4.3.2; man tofu_sim.7).
// Called by: job/process.cc when the process joins its job. Calls: topology/, job/report.
#include "job/environment.h"

#include "job/layout.h"
#include "job/report.h"

#include <utofu.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace tofu::sim {
namespace {

const char* text_of(const char* name) noexcept
{
    const char* const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? text : nullptr;
}

std::optional<uint64_t> parse_number(const char* text, uint64_t max) noexcept
{
    if (!std::isdigit(static_cast<unsigned char>(*text))) {
        return std::nullopt;
    }
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > max) {
        return std::nullopt;
    }
    return value;
}

// Of a launcher: silently ignored unless it is a number.
std::optional<uint32_t> first_number(std::initializer_list<const char*> names) noexcept
{
    for (const char* name : names) {
        if (const char* const text = text_of(name)) {
            if (const auto value = parse_number(text, UINT32_MAX - 1)) {
                return static_cast<uint32_t>(*value);
            }
        }
    }
    return std::nullopt;
}

int refuse(const char* name, const char* text, const char* expected) noexcept
{
    report("%s=%.80s: %s", name, text, expected);
    return UTOFU_ERR_INVALID_ARG;
}

bool is_job_name(const char* text) noexcept
{
    const size_t length = std::strlen(text);
    if (length == 0 || length > 64 || text[0] == '.') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (!std::isalnum(static_cast<unsigned char>(*text)) && std::strchr("._-", *text) == nullptr) {
            return false;
        }
    }
    return true;
}

// What a launcher calls the job may hold anything: keep it recognisable and make it a file name. A long
// name keeps its end, where launchers put what differs.
void set_launcher_job(char (&job)[65], const char* prefix, const char* text,
                      const char* step = "") noexcept
{
    char whole[256];
    std::snprintf(whole, sizeof whole, "%.120s%s%.100s", text, *step != '\0' ? "." : "", step);
    const size_t length = std::strlen(whole);
    const size_t room = sizeof job - 1 - std::strlen(prefix) - 1;
    std::snprintf(job, sizeof job, "%s-%.*s", prefix, static_cast<int>(room),
                  length > room ? whole + length - room : whole);
    for (char* c = job; *c != '\0'; c++) {
        if (!std::isalnum(static_cast<unsigned char>(*c)) && std::strchr("._-", *c) == nullptr) {
            *c = '_';
        }
    }
}

int read_job(Environment& environment) noexcept
{
    if (const char* const text = text_of("TOFU_SIM_JOB")) {
        if (!is_job_name(text)) {
            return refuse("TOFU_SIM_JOB", text,
                          "use up to 64 letters, digits, '.', '_' and '-', not starting with '.'");
        }
        std::snprintf(environment.job, sizeof environment.job, "%s", text);
        return UTOFU_SUCCESS;
    }
    if (const char* const text = text_of("PMIX_NAMESPACE")) {
        set_launcher_job(environment.job, "pmix", text);
    } else if (const char* const id = text_of("OMPI_MCA_ess_base_jobid")) {
        set_launcher_job(environment.job, "ompi", id);
    } else if (const char* const slurm = text_of("SLURM_JOB_ID")) {
        const char* const step = text_of("SLURM_STEP_ID");
        set_launcher_job(environment.job, "slurm", slurm, step != nullptr ? step : "");
    } else if (const char* const pmi = text_of("PMI_JOBID")) {
        set_launcher_job(environment.job, "pmi", pmi);
    } else if (const char* const port = text_of("PMI_PORT")) {
        set_launcher_job(environment.job, "pmi", port); // hydra: one port per job
    }
    return UTOFU_SUCCESS;
}

int read_shape(Environment& environment) noexcept
{
    std::array<uint8_t, 3> units = {1, 1, 1};
    uint8_t wraps = 0;
    if (const char* const text = text_of("TOFU_SIM_SHAPE")) {
        const auto parsed = parse_shape(text);
        if (!parsed) {
            return refuse("TOFU_SIM_SHAPE", text,
                          "is not a shape: give units of 2x3x2 nodes along X, Y and Z, for example "
                          "1x1x2, at most 255 an axis and 262144 nodes in all");
        }
        units = *parsed;
    }
    if (const char* const text = text_of("TOFU_SIM_TORUS")) {
        const auto parsed = parse_torus(text);
        if (!parsed) {
            return refuse("TOFU_SIM_TORUS", text,
                          "name the axes that wrap around with the letters x, y and z, for example xz");
        }
        wraps = *parsed;
    }
    environment.topology = Topology(units, wraps);
    if (const char* const text = text_of("TOFU_SIM_PPN")) {
        const auto parsed = parse_number(text, cqs_per_node);
        if (!parsed || *parsed == 0) {
            return refuse("TOFU_SIM_PPN", text, "give the processes of a node, 1 to 54");
        }
        environment.ppn = static_cast<uint32_t>(*parsed);
    }
    return UTOFU_SUCCESS;
}

// The UTOFU_* variables: the guide names no error, so what is no number leaves the default, with a line.
void read_mrq_entries(const char* name, uint32_t& entries) noexcept
{
    if (const char* const text = text_of(name)) {
        if (const auto parsed = parse_mrq_entries(text)) {
            entries = *parsed;
        } else {
            report("%s=%.80s: is no number of entries; using %u", name, text, entries);
        }
    }
}

// True: it has been given.
bool read_cqs(const char* name, uint32_t& number) noexcept
{
    const char* const text = text_of(name);
    if (text == nullptr) {
        return false;
    }
    const auto parsed = parse_number(text, UINT32_MAX);
    if (parsed) {
        number = static_cast<uint32_t>(*parsed);
    } else {
        report("%s=%.80s: is no number of CQs; using %u", name, text, number);
    }
    return parsed.has_value();
}

} // namespace

std::optional<uint32_t> parse_mrq_entries(const char* text) noexcept
{
    if (!std::isdigit(static_cast<unsigned char>(*text))) {
        return std::nullopt;
    }
    char* end = nullptr;
    uint64_t value = std::strtoull(text, &end, 10); // saturates: still the nearest
    unsigned shift = 0;
    if ((end[0] | 0x20) == 'k' && (end[1] | 0x20) == 'i' && end[2] == '\0') {
        shift = 10;
    } else if ((end[0] | 0x20) == 'm' && (end[1] | 0x20) == 'i' && end[2] == '\0') {
        shift = 20;
    } else if (*end != '\0') {
        return std::nullopt;
    }
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
    if (const int rc = read_job(*this); rc != UTOFU_SUCCESS) {
        return rc;
    }
    if (const int rc = read_shape(*this); rc != UTOFU_SUCCESS) {
        return rc;
    }
    if (const char* const text = text_of("TOFU_SIM_RANK"); text && !parse_number(text, UINT32_MAX - 1)) {
        return refuse("TOFU_SIM_RANK", text, "give this process's number, 0 or higher");
    }
    rank = first_number({"TOFU_SIM_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
    size = first_number({"TOFU_SIM_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
    read_mrq_entries("UTOFU_NUM_MRQ_ENTRIES", mrq_entries);
    read_mrq_entries("UTOFU_NUM_MRQ_ENTRIES_SESSION", mrq_entries_session);
    (void)read_cqs("UTOFU_NUM_EXCLUSIVE_CQS", exclusive_cqs);
    keep_session_cqs = read_cqs("UTOFU_NUM_SESSION_MODE_CQS", session_cqs);
    if (const char* const text = text_of("TOFU_SIM_CHAOS")) {
        chaos = parse_chaos(text);
        if (!chaos) {
            return refuse("TOFU_SIM_CHAOS", text, chaos_expected);
        }
    }
    return UTOFU_SUCCESS;
}

} // namespace tofu::sim
