// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider that owns the receives, the queue and the counter of ours (fi_peer(3)): receives are posted here, and
// matched one after the other in lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "core/peer_abi.h"

namespace tofu::test {

/// An entry of the owner's queue.
struct Told {
    void* context;
    std::uint64_t flags;
    std::size_t length;
    std::uint64_t data;
    std::uint64_t tag;
    fi_addr_t source;
    int err = 0;
    std::size_t overflow = 0;
    std::string error_data{};
};

class Owner {
  public:
    Owner()
    {
        srx.owner = &srx_ops;
        srx.ep.fid.context = this;
        cq.owner = &cq_ops;
        cq.fid.context = this;
        cntr.owner = &cntr_ops;
        cntr.fid.context = this;
    }
    /// What fi_trecv or, with no tag, fi_recv of the owner do. Not 0: what the peer's start answered.
    int receive(bool tagged, void* buffer, std::size_t length, void* context, std::uint64_t tag = 0,
                std::uint64_t ignore = 0, fi_addr_t from = FI_ADDR_UNSPEC)
    {
        for (auto at = kept.begin(); at != kept.end(); ++at) {
            Item& item = **at;
            const peer::EntryFields& e = item.fields();
            if (item.tagged != tagged || ((e.tag ^ tag) & ~ignore) != 0 || (from != FI_ADDR_UNSPEC && from != e.source))
                continue;
            std::unique_ptr<Item> owned = std::move(*at);
            kept.erase(at);
            fill(item, buffer, length, context);
            Item* const raw = given(std::move(owned));
            return (tagged ? srx.peer->start_tag : srx.peer->start_msg)(raw->entry());
        }
        auto item = std::make_unique<Item>();
        item->tagged = tagged;
        item->ignore = ignore;
        item->fields().tag = tag;
        item->fields().source = from;
        fill(*item, buffer, length, context);
        posted.push_back(std::move(item));
        return 0;
    }
    /// The first waiting message belongs to no receive.
    int discard()
    {
        std::unique_ptr<Item> item = std::move(kept.front());
        kept.pop_front();
        return (item->tagged ? srx.peer->discard_tag : srx.peer->discard_msg)(item->entry());
    }

    struct Item {
        void* links[2]; ///< of entries until libfabric 2.2
        peer::EntryFields after_links;
        iovec iov[2];
        bool tagged = false;
        std::uint64_t ignore = 0;
        peer::Entry* entry()
        {
            return FI_MINOR(provider.fi_version) < 3 ? reinterpret_cast<peer::Entry*>(this)
                                                     : reinterpret_cast<peer::Entry*>(&after_links);
        }
        peer::EntryFields& fields() { return after_links; }
        static Item& of(peer::Entry* entry)
        {
            const std::size_t before = FI_MINOR(provider.fi_version) < 3 ? 0 : offsetof(Item, after_links);
            return *reinterpret_cast<Item*>(reinterpret_cast<char*>(entry) - before);
        }
    };
    peer::Srx srx{};
    peer::Cq cq{};
    peer::Cntr cntr{};
    std::list<std::unique_ptr<Item>> posted, kept, with_peer;
    std::deque<Told> told;
    std::uint64_t count = 0, errors = 0;
    unsigned refusals = 0; ///< so many writes find the queue full
    bool has_untagged = true;

  private:
    template <class Fid>
    static Owner& of(Fid* object)
    {
        return *static_cast<Owner*>(reinterpret_cast<struct fid*>(object)->context);
    }
    static void fill(Item& item, void* buffer, std::size_t length, void* context)
    {
        // in two pieces, and with a descriptor that is none of ours
        static void* strange[2] = {&strange, &strange};
        item.iov[0] = {buffer, length / 2};
        item.iov[1] = {static_cast<char*>(buffer) + length / 2, length - length / 2};
        peer::EntryFields& e = item.fields();
        e.iov = item.iov;
        e.count = 2;
        e.desc = strange;
        e.context = context;
    }
    Item* given(std::unique_ptr<Item> item)
    {
        with_peer.push_back(std::move(item));
        return with_peer.back().get();
    }
    int get(bool tagged, const peer::Match& match, peer::Entry** entry)
    {
        if (!tagged && !has_untagged)
            return -FI_ENOSYS;
        for (auto at = posted.begin(); at != posted.end(); ++at) {
            const peer::EntryFields& e = (*at)->fields();
            if ((*at)->tagged != tagged || ((e.tag ^ match.tag) & ~(*at)->ignore) != 0 ||
                (e.source != FI_ADDR_UNSPEC && e.source != match.source))
                continue;
            auto item = std::move(*at);
            posted.erase(at);
            *entry = given(std::move(item))->entry();
            return 0;
        }
        auto item = std::make_unique<Item>();
        item->tagged = tagged;
        item->fields() = {};
        item->fields().source = match.source;
        item->fields().tag = match.tag;
        *entry = given(std::move(item))->entry();
        return -FI_ENOENT;
    }
    int queue(peer::Entry* entry)
    {
        for (auto at = with_peer.begin(); at != with_peer.end(); ++at)
            if ((*at)->entry() == entry) {
                kept.push_back(std::move(*at));
                with_peer.erase(at);
                return 0;
            }
        return -FI_EINVAL;
    }
    void free(peer::Entry* entry)
    {
        with_peer.remove_if([entry](const auto& item) { return item->entry() == entry; });
    }
    // The entry knows no owner here (lnx leaves srx empty, too): there is one in a process.
    static inline Owner* only = nullptr;

  public:
    struct Only {
        explicit Only(Owner& owner) { only = &owner; }
        ~Only() { only = nullptr; }
    } only_one{*this};

  private:
    peer::SrxOwnerOps srx_ops = {
        sizeof(peer::SrxOwnerOps),
        [](peer::Srx* s, peer::Match* m, peer::Entry** e) { return of(s).get(false, *m, e); },
        [](peer::Srx* s, peer::Match* m, peer::Entry** e) { return of(s).get(true, *m, e); },
        [](peer::Entry* e) { return only->queue(e); },
        [](peer::Entry* e) { return only->queue(e); },
        [](peer::Srx* s, fi_addr_t (*source_of)(peer::Entry*)) {
            for (auto& item : of(s).kept)
                if (item->fields().source == FI_ADDR_UNSPEC)
                    item->fields().source = source_of(item->entry());
        },
        [](peer::Entry* e) { only->free(e); },
    };
    peer::CqOwnerOps cq_ops = {
        sizeof(peer::CqOwnerOps),
        [](peer::Cq* q, void* context, std::uint64_t flags, std::size_t length, void*, std::uint64_t data,
           std::uint64_t tag, fi_addr_t source) -> ssize_t {
            return of(q).tell({context, flags, length, data, tag, source});
        },
        [](peer::Cq* q, const fi_cq_err_entry* e) -> ssize_t {
            fi_addr_t source = 0; // behind what the header of 1.17 declares
            std::memcpy(&source, reinterpret_cast<const char*>(e) + 80, sizeof source);
            return of(q).tell({e->op_context,
                               e->flags,
                               e->len,
                               e->data,
                               e->tag,
                               source,
                               e->err,
                               e->olen,
                               {static_cast<const char*>(e->err_data), e->err_data_size}});
        },
    };
    peer::CntrOwnerOps cntr_ops = {
        sizeof(peer::CntrOwnerOps),
        [](peer::Cntr* c) { of(c).count++; },
        [](peer::Cntr* c) { of(c).errors++; },
    };
    ssize_t tell(const Told& entry)
    {
        if (refusals != 0 && refusals-- != 0)
            return -FI_EAGAIN;
        told.push_back(entry);
        return 0;
    }
};

} // namespace tofu::test
