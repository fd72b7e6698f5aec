// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.3 and 3.5: VCQs, their IDs, and paths.
#include "api/exports.h"

#include "tni/remote.h"
#include "tni/vcq.h"
#include "topology/ids.h"

#include <algorithm>

using namespace tofu::sim;

namespace {

constexpr unsigned long vcq_flags = UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE;

int create(unsigned tni, int component, unsigned long flags, utofu_vcq_hdl_t* vcq_hdl) noexcept
{
    if (vcq_hdl == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (tni >= tnis_per_node)
        return fail(UTOFU_ERR_INVALID_TNI_ID);
    const bool exclusive = (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0;
    const bool session = (flags & UTOFU_VCQ_FLAG_SESSION_MODE) != 0;
    if ((flags & ~vcq_flags) != 0 || (exclusive && session) || (component != any_component && (exclusive || session)))
        return fail(UTOFU_ERR_INVALID_FLAGS);
    return checked(create_vcq(tni, component, flags, *vcq_hdl));
}

/// Joins the job, whose shape limits the IDs, and checks one.
int check_vcq_id(uint64_t vcq_id) noexcept
{
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return rc;
    return is_possible_vcq_id(vcq_id, self.topology()) ? UTOFU_SUCCESS : UTOFU_ERR_INVALID_VCQ_ID;
}

/// The caller's path coordinates, or for NULL one of the shortest paths from here to the VCQ.
int path_to(uint64_t vcq_id, const uint8_t* path_coords, PathCoords& path) noexcept
{
    if (path_coords == nullptr) {
        Process& self = Process::self();
        path = self.topology().choose_path(self.coords(), decode_coords(vcq_id));
        return UTOFU_SUCCESS;
    }
    path = {path_coords[0], path_coords[1], path_coords[2]};
    return Topology::contains_path(path) ? UTOFU_SUCCESS : UTOFU_ERR_INVALID_PATH;
}

} // namespace

extern "C" {

int putofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t* vcq_hdl)
{
    return create(tni_id, any_component, flags, vcq_hdl);
}

int putofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                  utofu_vcq_hdl_t* vcq_hdl)
{
    if (vcq_hdl != nullptr && tni_id < tnis_per_node && cmp_id >= vcqs_per_cq)
        return fail(UTOFU_ERR_INVALID_CMP_ID);
    return create(tni_id, cmp_id, flags, vcq_hdl);
}

int putofu_free_vcq(utofu_vcq_hdl_t vcq_hdl)
{
    return checked(free_vcq(vcq_hdl));
}

int putofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t* vcq_id)
{
    const Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr)
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (vcq_id == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    *vcq_id = vcq->id;
    return UTOFU_SUCCESS;
}

int putofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                            utofu_vcq_id_t* vcq_id)
{
    if (coords == nullptr || vcq_id == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    Coords place;
    std::copy_n(coords, place.size(), place.begin());
    if (!self.topology().contains(place))
        return fail(UTOFU_ERR_INVALID_COORDS);
    if (tni_id >= tnis_per_node)
        return fail(UTOFU_ERR_INVALID_TNI_ID);
    if (cq_id >= cqs_per_tni)
        return fail(UTOFU_ERR_INVALID_CQ_ID);
    if (cmp_id >= vcqs_per_cq)
        return fail(UTOFU_ERR_INVALID_CMP_ID);
    *vcq_id = encode_vcq_id({place,
                             {place[3], place[4], place[5]},
                             static_cast<uint8_t>(tni_id),
                             static_cast<uint8_t>(cq_id),
                             static_cast<uint8_t>(cmp_id)});
    return UTOFU_SUCCESS;
}

int putofu_set_vcq_id_path(utofu_vcq_id_t* vcq_id, uint8_t path_coords[])
{
    if (vcq_id == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (const int rc = check_vcq_id(*vcq_id); rc != UTOFU_SUCCESS)
        return fail(rc);
    PathCoords path;
    if (const int rc = path_to(*vcq_id, path_coords, path); rc != UTOFU_SUCCESS)
        return fail(rc);
    *vcq_id = vcq_key(*vcq_id) | uint64_t{encode_path(path)} << 28;
    return UTOFU_SUCCESS;
}

int putofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_cq_id_t* cq_id,
                          uint16_t* extra_val)
{
    if (coords == nullptr || tni_id == nullptr || cq_id == nullptr || extra_val == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (const int rc = check_vcq_id(vcq_id); rc != UTOFU_SUCCESS)
        return fail(rc);
    const VcqAddress address = decode_vcq_id(vcq_id);
    std::copy(address.coords.begin(), address.coords.end(), coords);
    *tni_id = address.tni;
    *cq_id = address.cq;
    *extra_val = static_cast<uint16_t>(8 + address.component);
    return UTOFU_SUCCESS;
}

int putofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t* path_id)
{
    if (path_id == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (const int rc = check_vcq_id(vcq_id); rc != UTOFU_SUCCESS)
        return fail(rc);
    PathCoords path;
    if (const int rc = path_to(vcq_id, path_coords, path); rc != UTOFU_SUCCESS)
        return fail(rc);
    *path_id = encode_path(path);
    return UTOFU_SUCCESS;
}

int putofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[])
{
    if (path_coords == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (const int rc = check_vcq_id(vcq_id); rc != UTOFU_SUCCESS)
        return fail(rc);
    const PathCoords path = decode_path(path_id);
    if (path_id > 0xf || !Topology::contains_path(path))
        return fail(UTOFU_ERR_INVALID_PATH_ID);
    std::copy(path.begin(), path.end(), path_coords);
    return UTOFU_SUCCESS;
}

} // extern "C"

TOFU_SIM_ALIAS(create_vcq);
TOFU_SIM_ALIAS(create_vcq_with_cmp_id);
TOFU_SIM_ALIAS(free_vcq);
TOFU_SIM_ALIAS(query_vcq_id);
TOFU_SIM_ALIAS(construct_vcq_id);
TOFU_SIM_ALIAS(set_vcq_id_path);
TOFU_SIM_ALIAS(query_vcq_info);
TOFU_SIM_ALIAS(get_path_id);
TOFU_SIM_ALIAS(get_path_coords);
