// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See channel.h.
#include "channel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>

#include "types.h"

namespace tofu_mpi {

namespace {

struct Name {
    std::size_t length;
    char bytes[56];
};

template <class T>
void shut(T*& object) noexcept
{
    if (object != nullptr)
        (void)fi_close(&object->fid);
    object = nullptr;
}

fi_info* find_provider() noexcept
{
    fi_info* const hints = fi_allocinfo();
    fi_info* info = nullptr;
    if (hints == nullptr)
        return nullptr;
    hints->caps = FI_MSG | FI_COLLECTIVE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->mode = ~std::uint64_t{0};
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->tx_attr->size = 8; // one operation at a time
    hints->rx_attr->size = 8; // and no receive
    hints->fabric_attr->prov_name = ::strdup("tofu");
    if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info) != 0)
        info = nullptr;
    fi_freeinfo(hints);
    return info;
}

} // namespace

bool Channel::open() noexcept
{
    info_ = find_provider();
    fi_av_attr av{};
    av.type = FI_AV_TABLE; // addresses are ranks of MPI_COMM_WORLD
    fi_eq_attr eq{};
    eq.wait_obj = FI_WAIT_NONE;
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_CONTEXT;
    return info_ != nullptr && fi_fabric(info_->fabric_attr, &fabric_, nullptr) == 0 &&
           fi_domain(fabric_, info_, &domain_, nullptr) == 0 && offers_all(domain_) &&
           fi_av_open(domain_, &av, &av_, nullptr) == 0 && fi_eq_open(fabric_, &eq, &eq_, nullptr) == 0 &&
           fi_cq_open(domain_, &cq, &cq_, nullptr) == 0 && fi_endpoint(domain_, info_, &ep_, nullptr) == 0 &&
           fi_ep_bind(ep_, &av_->fid, 0) == 0 && fi_ep_bind(ep_, &eq_->fid, 0) == 0 &&
           fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_enable(ep_) == 0 &&
           PMPI_Comm_dup(MPI_COMM_SELF, &own_) == MPI_SUCCESS &&
           PMPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, own_, &never_) == MPI_SUCCESS &&
           PMPI_Comm_group(MPI_COMM_WORLD, &world_) == MPI_SUCCESS;
}

bool Channel::meet() noexcept
{
    int size = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    std::unique_ptr<Name[]> names(new (std::nothrow) Name[static_cast<std::size_t>(size)]);
    // The exchange is collective, so a process without memory for the answer has to end the job.
    if (names == nullptr)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    Name own{};
    own.length = sizeof(own.bytes);
    if (fi_getname(&ep_->fid, own.bytes, &own.length) != 0)
        own.length = 0;
    if (PMPI_Allgather(&own, sizeof(own), MPI_BYTE, names.get(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        return false;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); rank++) {
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        if (names[rank].length == 0 || fi_av_insert(av_, names[rank].bytes, 1, &address, 0, nullptr) != 1 ||
            address != rank)
            return false;
    }
    return true;
}

void Channel::close() noexcept
{
    shut(ep_);
    shut(cq_);
    shut(eq_);
    shut(av_);
    shut(domain_);
    shut(fabric_);
    if (info_ != nullptr)
        fi_freeinfo(info_);
    info_ = nullptr;
    if (never_ != MPI_REQUEST_NULL) {
        PMPI_Send(nullptr, 0, MPI_BYTE, 0, 0, own_);
        PMPI_Wait(&never_, MPI_STATUS_IGNORE);
    }
    if (own_ != MPI_COMM_NULL)
        PMPI_Comm_free(&own_);
    if (world_ != MPI_GROUP_NULL)
        PMPI_Group_free(&world_);
}

bool Channel::members(MPI_Comm comm, int* ranks, int size) const noexcept
{
    std::unique_ptr<int[]> own(new (std::nothrow) int[static_cast<std::size_t>(size)]);
    if (own == nullptr)
        PMPI_Abort(MPI_COMM_WORLD, 1); // otherwise the other members would wait for this one
    std::iota(own.get(), own.get() + size, 0);
    MPI_Group group = MPI_GROUP_NULL;
    PMPI_Comm_group(comm, &group);
    PMPI_Group_translate_ranks(group, size, own.get(), world_, ranks);
    PMPI_Group_free(&group);
    return std::find(ranks, ranks + size, MPI_UNDEFINED) == ranks + size;
}

int Channel::join(const int* ranks, int size, fid_mc*& mc) noexcept
{
    fi_av_set_attr attr{};
    attr.count = static_cast<std::size_t>(size);
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    fid_av_set* set = nullptr;
    int rc = fi_av_set(av_, &attr, &set, nullptr);
    for (int i = 0; i < size && rc == 0; i++)
        rc = fi_av_set_insert(set, static_cast<fi_addr_t>(ranks[i]));
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    if (rc == 0)
        rc = fi_av_set_addr(set, &address);
    if (rc == 0)
        rc = fi_join_collective(ep_, address, set, 0, &mc, nullptr);
    shut(set); // a group has its own copy of the list
    return rc;
}

bool Channel::joined(const fid_mc& mc) noexcept
{
    for (;;) {
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        const ssize_t n = fi_eq_read(eq_, &event, &entry, sizeof(entry), 0);
        if (n == sizeof(entry) && entry.fid == &mc.fid)
            return event == FI_JOIN_COMPLETE;
        fi_eq_err_entry error{};
        if (n == -FI_EAVAIL && fi_eq_readerr(eq_, &error, 0) > 0 && error.fid == &mc.fid)
            return false;
        progress_of_mpi(); // events of other groups are ignored: they were abandoned
    }
}

int Channel::poll() noexcept
{
    fi_cq_entry entry;
    const ssize_t n = fi_cq_read(cq_, &entry, 1);
    progress_of_mpi();
    if (n == 1)
        return 0;
    if (n == -FI_EAGAIN)
        return -1;
    fi_cq_err_entry error{};
    return fi_cq_readerr(cq_, &error, 0) == 1 && error.err > 0 ? error.err : FI_EOTHER;
}

void Channel::progress_of_mpi() noexcept
{
    if (++polls_ % polls_per_test != 0)
        return;
    // Not MPI_Iprobe, which makes no progress in MPICH over UCX.
    int done = 0;
    (void)PMPI_Test(&never_, &done, MPI_STATUS_IGNORE);
}

} // namespace tofu_mpi
