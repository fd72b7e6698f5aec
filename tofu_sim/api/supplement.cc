// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.9: versions, coordinates; and the text of the last error, which the guide does not have.
#include "api/exports.h"

#include "clock/clock.h"
#include "job/process.h"

#include <algorithm>
#include <cstdio>

namespace tofu::sim {
namespace {

thread_local int last_error = UTOFU_SUCCESS;

const char* describe(int code) noexcept
{
    switch (code) {
    case UTOFU_SUCCESS: return "no error";
    case UTOFU_ERR_USED: return "the resource is already used";
    case UTOFU_ERR_FULL: return "the resource is exhausted";
    case UTOFU_ERR_NOT_AVAILABLE: return "the resource is not available";
    case UTOFU_ERR_NOT_SUPPORTED: return "the operation is not supported";
    case UTOFU_ERR_INVALID_ARG: return "invalid argument";
    case UTOFU_ERR_INVALID_POINTER: return "invalid pointer";
    case UTOFU_ERR_INVALID_FLAGS: return "invalid flags";
    case UTOFU_ERR_INVALID_COORDS: return "invalid coordinates";
    case UTOFU_ERR_INVALID_PATH: return "invalid path coordinates";
    case UTOFU_ERR_INVALID_TNI_ID: return "invalid TNI ID";
    case UTOFU_ERR_INVALID_CQ_ID: return "invalid CQ ID";
    case UTOFU_ERR_INVALID_BG_ID: return "invalid barrier gate ID";
    case UTOFU_ERR_INVALID_CMP_ID: return "invalid component ID";
    case UTOFU_ERR_INVALID_VCQ_HDL: return "invalid VCQ handle";
    case UTOFU_ERR_INVALID_VCQ_ID: return "invalid VCQ ID";
    case UTOFU_ERR_INVALID_VBG_ID: return "invalid VBG ID";
    case UTOFU_ERR_INVALID_PATH_ID: return "invalid path ID";
    case UTOFU_ERR_INVALID_STADD: return "invalid STADD";
    case UTOFU_ERR_INVALID_ADDRESS: return "invalid address";
    case UTOFU_ERR_INVALID_SIZE: return "invalid size";
    case UTOFU_ERR_INVALID_STAG: return "invalid STag";
    case UTOFU_ERR_INVALID_EDATA: return "invalid EDATA";
    case UTOFU_ERR_INVALID_NUMBER: return "invalid number";
    case UTOFU_ERR_INVALID_OP: return "invalid operation";
    case UTOFU_ERR_INVALID_DESC: return "invalid descriptor";
    case UTOFU_ERR_INVALID_DATA: return "invalid data in a structure";
    case UTOFU_ERR_OUT_OF_RESOURCE: return "out of a resource";
    case UTOFU_ERR_OUT_OF_MEMORY: return "out of memory";
    default: return "error";
    }
}

} // namespace

int fail(int code) noexcept
{
    if (code != UTOFU_ERR_BUSY && code != UTOFU_ERR_NOT_FOUND)
        last_error = code;
    return code;
}

} // namespace tofu::sim

using namespace tofu::sim;

extern "C" {

void putofu_query_tofu_version(int* major_ver, int* minor_ver)
{
    if (major_ver != nullptr && minor_ver != nullptr) {
        *major_ver = 3; // table 6.1
        *minor_ver = 0;
    }
}

void putofu_query_utofu_version(int* major_ver, int* minor_ver)
{
    if (major_ver != nullptr && minor_ver != nullptr) {
        *major_ver = UTOFU_VERSION_MAJOR;
        *minor_ver = UTOFU_VERSION_MINOR;
    }
}

int putofu_query_my_coords(uint8_t coords[])
{
    if (coords == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    // Acts, in exact mode: what the processes of a node then divide among themselves, for example by locks on a file,
    // goes to them in the order of turns.
    const TurnedCall call(TurnedCall::Kind::acts);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    const Coords mine = self.coords();
    std::copy(mine.begin(), mine.end(), coords);
    return UTOFU_SUCCESS;
}

void putofu_get_last_error(const char* text)
{
    if (text != nullptr)
        std::snprintf(const_cast<char*>(text), 1024, "%s (%d)", describe(last_error), last_error);
}

} // extern "C"

TOFU_SIM_ALIAS(query_tofu_version);
TOFU_SIM_ALIAS(query_utofu_version);
TOFU_SIM_ALIAS(query_my_coords);
TOFU_SIM_ALIAS(get_last_error);
