// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See handle.h.
#include "utofu/handle.h"

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu::vcq {

namespace {

constexpr unsigned exclusive_most = 6;

struct Made {
    utofu_vcq_hdl_t handle = 0;
    utofu_vcq_id_t id = 0;
};

void unmake(const Backend& backend, const Made& made) noexcept
{
    backend.functions().free_vcq(made.handle);
    places::release(backend, made.id);
}

/// Creates a VCQ on the first TNI of the place that gives one whose CQ no other process has. If a TNI gives a CQ that
/// another process has, nobody has divided the CQs of this node, and TNIs with other processes are left alone from then
/// on. A spare VCQ is made on the first TNI or not at all.
int create(const Backend& backend, const places::Place& place, unsigned long flags, Made& made,
           bool spare = false) noexcept
{
    const Functions& f = backend.functions();
    int code = UTOFU_ERR_FULL;
    for (std::size_t i = 0, met = 0; i < (spare ? 1 : place.span); i++) {
        const utofu_tni_id_t tni = backend.tnis()[places::tni_of(place, i)];
        if (met != 0 && !places::is_own(backend, tni))
            continue;
        if (const int why = f.create_vcq(tni, flags, &made.handle); why != UTOFU_SUCCESS) {
            code = met != 0 ? code : why;
            continue;
        }
        if (code = f.query_vcq_id(made.handle, &made.id); code != UTOFU_SUCCESS) {
            f.free_vcq(made.handle);
            break;
        }
        if (places::claim(backend, made.id, spare))
            break;
        f.free_vcq(made.handle);
        code = UTOFU_ERR_USED;
        met++;
    }
    return code;
}

/// Creates a VCQ on a CQ of its own, unless the process would then have no CQ to share: a process may have a single CQ
/// (48 on a node of Fugaku), and uTofu does not tell how many. So this function makes one more VCQ for a moment.
int create_alone(const Backend& backend, const places::Place& place, Made& made) noexcept
{
    if (const int code = create(backend, place, UTOFU_VCQ_FLAG_EXCLUSIVE, made); code != UTOFU_SUCCESS)
        return code;
    Made another;
    const int code = create(backend, place, UTOFU_VCQ_FLAG_THREAD_SAFE, another);
    unmake(backend, code == UTOFU_SUCCESS ? another : made);
    return code;
}

} // namespace

int Handle::make(const Backend& backend, unsigned spread, bool thread_safe, StatisticsBook* book) noexcept
{
    if (is_open() || backend.tni_count() == 0)
        return -FI_EINVAL;
    // The first VCQ of a domain is its home, which peers send to.
    const bool spare = spread == spread_of_spare;
    const places::Place place = places::take(backend, spread == 0 ? places::Traffic::in : places::Traffic::out, spare);
    if (place.span == 0)
        return -FI_EBUSY;
    if (spare && !places::is_first_of_tni(place)) {
        places::give(place);
        return -FI_EBUSY;
    }
    Made made;
    int code = UTOFU_ERR_FULL;
    // A VCQ that is alone on its CQ needs no lock of the library besides its owner's (guide 3.3.4.1). Such CQs are few:
    // only the first VCQs of a domain get one.
    if (thread_safe && spread < exclusive_most)
        code = create_alone(backend, place, made);
    if (code != UTOFU_SUCCESS && code != UTOFU_ERR_USED)
        code = create(backend, place, thread_safe ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0, made, spare);
    if (code != UTOFU_SUCCESS) {
        places::give(place);
        return -fi_error_of(code);
    }
    place_ = place;
    backend_ = &backend;
    functions_ = &backend.functions();
    handle_ = made.handle;
    id_ = made.id;
    book_ = book;
    if (book != nullptr)
        book->add(statistics_);
    return 0;
}

void Handle::free() noexcept
{
    unmake(*backend_, {handle_, id_});
    if (book_ != nullptr)
        book_->remove(statistics_);
    places::give(place_);
    handle_ = 0;
    id_ = 0;
}

/// `stadd` is written on success only.
template <class Function, class... Args>
int Handle::made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept
{
    utofu_stadd_t made = 0;
    const int code = (functions_->*function)(args..., &made);
    if (code == UTOFU_SUCCESS)
        stadd = made;
    else
        last_error_ = code;
    return -fi_error_of(code);
}

int Handle::reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem, handle_, const_cast<void*>(addr), size,
                read_only ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0);
}

int Handle::reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem_with_stag, handle_, addr, size, stag, 0);
}

void Handle::dereg(utofu_stadd_t stadd) noexcept
{
    if (is_open() && !keeps_registrations_)
        functions_->dereg_mem(handle_, stadd, 0);
}

int Handle::query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::query_stadd, vcq, stag);
}

} // namespace tofu::vcq
