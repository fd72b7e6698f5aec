// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See finding.h.
#include "finding.h"

#include <cstdarg>
#include <cstdio>

#include <sched.h>
#include <utofu.h>

namespace tofu::check {

namespace {

std::string format_list(const char* format, va_list list)
{
    char line[1024];
    std::vsnprintf(line, sizeof line, format, list);
    return line;
}

} // namespace

const char* name_of(Verdict verdict) noexcept
{
    switch (verdict) {
    case Verdict::none: return "none";
    case Verdict::holds: return "holds";
    case Verdict::not_tried: return "not tried";
    case Verdict::weaker: return "weaker";
    case Verdict::fails: return "fails";
    }
    return "?";
}

std::string text(const char* format, ...)
{
    va_list list;
    va_start(list, format);
    std::string made = format_list(format, list);
    va_end(list);
    return made;
}

#define TOFU_CHECK_MAKER(name)                                                                                         \
    Finding name(const char* format, ...)                                                                              \
    {                                                                                                                  \
        va_list list;                                                                                                  \
        va_start(list, format);                                                                                        \
        Finding made{Verdict::name, format_list(format, list)};                                                        \
        va_end(list);                                                                                                  \
        return made;                                                                                                   \
    }
TOFU_CHECK_MAKER(holds)
TOFU_CHECK_MAKER(weaker)
TOFU_CHECK_MAKER(fails)
TOFU_CHECK_MAKER(not_tried)
#undef TOFU_CHECK_MAKER

Patience::Patience(const char* what, double limit) noexcept
    : what_(what),
      end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(limit)))
{
}

void Patience::next()
{
    if (++looks_ % 64 != 0)
        return;
    if (std::chrono::steady_clock::now() > end_)
        throw Silence{what_};
    sched_yield();
}

std::string code_name(int code)
{
    switch (code) {
#define X(name)                                                                                                        \
    case UTOFU_##name: return #name;
        X(SUCCESS)
        X(ERR_NOT_FOUND)
        X(ERR_NOT_COMPLETED)
        X(ERR_NOT_PROCESSED)
        X(ERR_BUSY)
        X(ERR_USED)
        X(ERR_FULL)
        X(ERR_NOT_AVAILABLE)
        X(ERR_NOT_SUPPORTED)
        X(ERR_TCQ_OTHER)
        X(ERR_TCQ_DESC)
        X(ERR_TCQ_MEMORY)
        X(ERR_TCQ_STADD)
        X(ERR_TCQ_LENGTH)
        X(ERR_MRQ_OTHER)
        X(ERR_MRQ_PEER)
        X(ERR_MRQ_LCL_MEMORY)
        X(ERR_MRQ_RMT_MEMORY)
        X(ERR_MRQ_LCL_STADD)
        X(ERR_MRQ_RMT_STADD)
        X(ERR_MRQ_LCL_LENGTH)
        X(ERR_MRQ_RMT_LENGTH)
        X(ERR_INVALID_ARG)
        X(ERR_INVALID_FLAGS)
        X(ERR_INVALID_VCQ_ID)
        X(ERR_INVALID_STADD)
        X(ERR_INVALID_ADDRESS)
        X(ERR_INVALID_SIZE)
        X(ERR_INVALID_STAG)
        X(ERR_OUT_OF_RESOURCE)
        X(ERR_OUT_OF_MEMORY)
        X(ERR_FATAL)
#undef X
    default: return text("code %d", code);
    }
}

void must(int code, const char* what)
{
    if (code != UTOFU_SUCCESS)
        throw Stop{fails("%s: %s", what, code_name(code).c_str())};
}

} // namespace tofu::check
