// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See key_readers.h. Readers' TNIs write the table at any time (tx/keys.cc).
#include "mem/key_readers.h"

#include <atomic>

#include "av/address.h"
#include "cq/domain_base.h"
#include "mem/mr_directory.h"
#include "mem/mr_table.h"

namespace tofu {

std::uint64_t& KeyReaders::word(std::size_t offset) const noexcept
{
    return *reinterpret_cast<std::uint64_t*>(domain_.regions().directory().area() + offset);
}

void KeyReaders::revoke() noexcept
{
    // Partner: the CSWAP of a reader, which comes before its Get. Either this scan finds the reader, or its Get finds the
    // entries of closed regions withdrawn.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (unsigned slot = 0; slot < directory::max_readers; slot++) {
        const std::size_t offset = directory::readers_offset + slot * sizeof(utofu_vcq_id_t);
        const utofu_vcq_id_t reader = std::atomic_ref(word(offset)).load(std::memory_order_relaxed);
        if (reader == 0) [[likely]]
            continue;
        Revocation& revocation = unused();
        revocation.state = Revocation::State::to_post;
        revocation.again = false;
        revocation.slot = slot;
        revocation.reader = reader;
        post(revocation);
    }
    while (advance()) {
    }
}

/// One that is not in use; waits for the end of another one if need be.
KeyReaders::Revocation& KeyReaders::unused() noexcept
{
    for (;; (void)advance())
        for (Revocation& revocation : revocations_)
            if (revocation.state == Revocation::State::unused)
                return revocation;
}

/// Polls, and continues what has ended or has not been posted. False: there is none under way.
bool KeyReaders::advance() noexcept
{
    bool some = false;
    (void)domain_.home().poll();
    for (Revocation& revocation : revocations_) {
        if (revocation.state == Revocation::State::ended)
            end(revocation);
        if (revocation.state == Revocation::State::to_post)
            post(revocation);
        some |= revocation.state != Revocation::State::unused;
    }
    return some;
}

void KeyReaders::post(Revocation& revocation) noexcept
{
    vcq::Vcq& home = domain_.home();
    utofu_stadd_t area = 0;
    revocation.notify = on_notice;
    revocation.code = UTOFU_ERR_INVALID_VCQ_ID;
    revocation.state = Revocation::State::under_way; // the notice may come within the post
    vcq::Post posted = vcq::Post::error;
    if (home.query_stadd(revocation.reader, directory_stag, area) == 0)
        posted = home.armw(8, revocation.reader, UTOFU_ARMW_OP_ADD, 1, area + directory::epoch_offset(domain_.home_id()),
                           {.when = vcq::When::delivered, .waiter = &revocation});
    if (posted == vcq::Post::busy)
        revocation.state = Revocation::State::to_post;
    else if (posted == vcq::Post::error)
        revocation.state = Revocation::State::ended;
}

void KeyReaders::on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& revocation = *static_cast<Revocation*>(waiter);
    revocation.code = notice.code;
    revocation.state = Revocation::State::ended;
}

/// A reader that cannot be reached is removed. Another domain may have opened its VCQ ID again and have found it in the
/// table before; so it gets a second post after that, and is entered again if it confirms.
void KeyReaders::end(Revocation& revocation) noexcept
{
    revocation.state = Revocation::State::unused;
    if (revocation.code == UTOFU_SUCCESS) {
        if (revocation.again)
            enter(revocation.reader);
        return;
    }
    if (revocation.again)
        return;
    utofu_vcq_id_t gone = revocation.reader;
    // seq_cst: the slot is empty before the second post takes effect
    std::atomic_ref(word(directory::readers_offset + revocation.slot * sizeof(gone)))
        .compare_exchange_strong(gone, 0, std::memory_order_seq_cst);
    revocation.again = true;
    revocation.state = Revocation::State::to_post;
}

void KeyReaders::enter(utofu_vcq_id_t reader) noexcept
{
    for (unsigned probe = 0; probe < directory::reader_probes; probe++) {
        utofu_vcq_id_t found = 0;
        if (std::atomic_ref(word(directory::reader_offset(reader, probe)))
                .compare_exchange_strong(found, reader, std::memory_order_seq_cst) ||
            found == reader)
            return;
    }
}

} // namespace tofu
