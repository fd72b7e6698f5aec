// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See remote.h.
#include "remote.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

namespace swarm {
namespace {

constexpr std::uint64_t all_rights = FI_REMOTE_READ | FI_REMOTE_WRITE;

void must(int result, const char* what)
{
    if (result != 0)
        contradict("%s: %s", what, fi_strerror(-result));
}

fi_datatype type_of(const Cell& cell)
{
    if (cell.real)
        return cell.size == 8 ? FI_DOUBLE : FI_FLOAT;
    return cell.size == 8 ? FI_UINT64 : cell.size == 4 ? FI_UINT32 : cell.size == 2 ? FI_INT16 : FI_UINT8;
}

fi_op op_of(const Cell& cell)
{
    switch (cell.rule) {
    case Cell::sum: return FI_SUM;
    case Cell::most: return FI_MAX;
    case Cell::exclusive_or: return FI_BXOR;
    case Cell::counts_swaps: break;
    }
    return FI_CSWAP;
}

/// A number as an operand of the word's type.
void store(unsigned char* to, const Cell& cell, std::uint64_t value)
{
    if (cell.real && cell.size == 8)
        value = std::bit_cast<std::uint64_t>(static_cast<double>(value));
    else if (cell.real)
        value = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    std::memcpy(to, &value, cell.size);
}

/// What the word that counts swaps is now. It may change before the next swap arrives, which then finds another one.
std::uint64_t swaps_so_far(const Region& region)
{
    const auto& cell = *std::find_if(std::begin(cells), std::end(cells),
                                     [](const Cell& each) { return each.rule == Cell::counts_swaps; });
    std::uint64_t word = 0;
    std::memcpy(&word, region.buffer->at() + cell.offset, sizeof word);
    return word;
}

} // namespace

void ask_for_remote(fi_info& hints, const Setup& setup, unsigned process)
{
    if (setup.rma == 0)
        return;
    hints.caps |= FI_RMA | FI_ATOMIC;
    if (setup.initiator != 0 && process == 0)
        hints.caps |= FI_READ | FI_WRITE | FI_SEND | FI_RECV;
    else if (setup.events != 0)
        hints.caps |= FI_RMA_EVENT;
    hints.domain_attr->mr_mode = setup.rma == 1 ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY : 0;
    if (setup.order != 0) {
        constexpr std::uint64_t orders = FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW |
                                         FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                                         FI_ORDER_ATOMIC_WAW;
        hints.tx_attr->msg_order |= orders;
        hints.rx_attr->msg_order |= orders;
    }
}

// --- regions

Remote::Held* Remote::find(unsigned process, unsigned slot)
{
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
        return held.region->process == process && held.region->slot == slot && held.mr != nullptr;
    });
    return found != held_.end() ? &*found : nullptr;
}

void Remote::open(unsigned process, fid_domain* domain, int mr_mode, const Command& command)
{
    const unsigned slot = command.region % region_slots;
    if (setup_.rma == 0 || (setup_.initiator != 0 && process == 0) || find(process, slot) != nullptr)
        return;
    const std::size_t size = std::clamp<std::size_t>(command.size, cells_size + 8, 100000);
    Held held;
    held.region = &model_.new_region(process, slot, size);
    unsigned char* const bytes = held.region->buffer->at();
    if (command.second != 0)
        must(fi_mr_reg(domain, bytes, size, all_rights, 0, slot + 1 + region_slots, 0, &held.twin, nullptr),
             "fi_mr_reg of the same memory");
    must(fi_mr_reg(domain, bytes, size, all_rights, 0, slot + 1, 0, &held.mr, nullptr), "fi_mr_reg");
    held.key = fi_mr_key(held.mr);
    held.base = (mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uintptr_t>(bytes) : 0;
    if (setup_.events != 0) {
        constexpr std::uint64_t rights[] = {FI_REMOTE_READ, FI_REMOTE_WRITE};
        fi_cntr_attr attr{};
        for (unsigned i = 0; i < 2; i++) {
            must(fi_cntr_open(domain, &attr, &held.counters[i], nullptr), "fi_cntr_open");
            must(fi_mr_bind(held.mr, &held.counters[i]->fid, rights[i]), "fi_mr_bind");
        }
        must(fi_mr_enable(held.mr), "fi_mr_enable");
    }
    held_.push_back(held);
}

void Remote::close(unsigned process, unsigned slot, bool killed)
{
    Held* const held = find(process, slot % region_slots);
    if (held == nullptr)
        return;
    for (fid_mr** const mr : {&held->mr, &held->twin})
        if (*mr != nullptr)
            must(fi_close(&std::exchange(*mr, nullptr)->fid), "fi_close of a region");
    model_.end(*held->region, killed);
    held->region->buffer->seal();
}

void Remote::close_all(unsigned process, bool killed)
{
    for (unsigned slot = 0; slot < region_slots; slot++)
        close(process, slot, killed);
    for (Held& held : held_)
        if (held.region->process == process)
            for (fid_cntr*& counter : held.counters)
                if (counter != nullptr)
                    must(fi_close(&std::exchange(counter, nullptr)->fid), "fi_close of a counter");
}

void Remote::lose_all(unsigned process)
{
    for (Held& held : held_) {
        if (held.region->process != process)
            continue;
        for (fid_cntr*& counter : held.counters)
            counter = nullptr;
        held.twin = nullptr;
        if (std::exchange(held.mr, nullptr) == nullptr)
            continue;
        model_.end(*held.region, true);
        held.region->buffer->seal();
    }
}

bool Remote::counts_hold(unsigned process, bool last)
{
    bool all = true;
    for (const Held& held : held_)
        for (unsigned i = 0; i < 2 && held.region->process == process; i++)
            if (held.counters[i] != nullptr)
                all &= model_.count_holds(*held.region, i == 0, fi_cntr_read(held.counters[i]), last);
    return all;
}

// --- accesses

/// False: there is no such region now.
bool Remote::add_part(Access& access, const Command& command, unsigned slot, std::size_t& at)
{
    const Held* const held = find(access.to->process, slot % region_slots);
    if (held == nullptr)
        return false;
    const std::size_t all = held->region->buffer->size();
    std::size_t offset, size;
    if (access.what == Access::atomic || access.of_cell) {
        offset = cells[access.cell].offset;
        size = cells[access.cell].size;
    } else {
        offset = cells_size + command.offset % (all - cells_size);
        // Of several regions each has some bytes: else it is not said which of them counts the access.
        size = std::clamp<std::size_t>(command.size, command.second != 0 ? 1 : 0, all - offset);
        if (command.beyond != 0 && command.second == 0) {
            offset = std::max(offset, all - std::min<std::size_t>(all - cells_size, 64));
            size = all - offset + 1 + command.beyond % 16;
        }
    }
    access.parts.push_back({held->region, offset, size, at});
    at += size;
    return true;
}

const Access* Remote::access(const Caller& caller, const Command& command)
{
    if (setup_.rma == 0)
        return nullptr;
    const Access::What what = command.what == Do::write ? Access::write
                              : command.what == Do::get ? Access::read
                                                        : Access::atomic;
    Access& access = model_.new_access(what, *caller.life, *caller.to);
    access.tx = command.tx;
    access.tx_life = caller.life->tx[access.tx].ends.size();
    access.cell = command.cell % cell_count;
    access.fence = command.fence != 0;
    // Words that only grow, and of which each value says which atomics may be in it.
    access.of_cell = what == Access::read && access.fence && command.fetch != 0 && cells[access.cell].size == 8 &&
                     (cells[access.cell].rule == Cell::sum || cells[access.cell].rule == Cell::most);
    access.beyond = what != Access::atomic && !access.of_cell && command.beyond != 0 && command.second == 0;
    access.data = what == Access::write && command.data != 0 && !access.beyond;
    const bool swaps = what == Access::atomic && cells[access.cell].rule == Cell::counts_swaps;
    access.fetches = what == Access::atomic && (command.fetch != 0 || swaps);
    std::size_t size = 0;
    bool good = add_part(access, command, command.region, size);
    if (good && command.second != 0)
        good = (command.second - 1) % region_slots != command.region % region_slots &&
               add_part(access, command, command.second - 1, size);
    if (!good) {
        model_.withdraw(access);
        return nullptr;
    }
    const bool injects = command.level == inject && command.later == 0 && size <= caller.inject_size;
    access.silent = injects && what != Access::read && !access.fetches && !access.fence && access.parts.size() == 1;
    access.injected = injects && what == Access::write && !access.silent;
    access.buffer = std::make_unique<Buffer>(size);
    if (what == Access::write) {
        fill(access.buffer->at(), size, 0x80000000 | access.number);
        access.content.assign(access.buffer->at(), access.buffer->at() + size);
    }
    if (what == Access::atomic)
        access.operand = swaps ? swaps_so_far(*access.parts[0].region) + 1 : 1 + access.number % 100;
    const ssize_t result = caller.try_to([&] { return post(caller, access, command); });
    if (result == 0) {
        if (access.silent || access.injected)
            std::memset(access.buffer->at(), 0xdd, size);
        return &access;
    }
    if (result != -FI_EAGAIN && access.targets_live())
        contradict("access %u from %s to %s, all of them alive: %s", access.number, caller.life->name().c_str(),
                   caller.to->name().c_str(), fi_strerror(static_cast<int>(-result)));
    model_.withdraw(access);
    return nullptr;
}

ssize_t Remote::post(const Caller& caller, Access& access, const Command& command)
{
    if (access.what == Access::atomic)
        return post_atomic(caller, access, command);
    fi_rma_iov remote[2];
    for (std::size_t i = 0; i < access.parts.size(); i++) {
        const Access::Part& part = access.parts[i];
        const Held& held = *find(part.region->process, part.region->slot);
        remote[i] = {held.base + part.offset, part.size, held.key};
    }
    unsigned char* const bytes = access.buffer->at();
    const std::size_t size = access.buffer->size();
    const bool reads = access.what == Access::read;
    const std::uint64_t data = access_mark | access.number;
    if (access.silent)
        return access.data
                   ? fi_inject_writedata(caller.ep, bytes, size, data, caller.to_address, remote[0].addr, remote[0].key)
                   : fi_inject_write(caller.ep, bytes, size, caller.to_address, remote[0].addr, remote[0].key);
    if (command.later == 0 && access.parts.size() == 1 && !access.fence &&
        (command.level == plain || command.level == inject)) {
        if (reads)
            return fi_read(caller.ep, bytes, size, nullptr, caller.to_address, remote[0].addr, remote[0].key, &access);
        return access.data ? fi_writedata(caller.ep, bytes, size, nullptr, data, caller.to_address, remote[0].addr,
                                          remote[0].key, &access)
                           : fi_write(caller.ep, bytes, size, nullptr, caller.to_address, remote[0].addr, remote[0].key,
                                      &access);
    }
    const iovec local[2] = {{bytes, size / 3}, {bytes + size / 3, size - size / 3}};
    fi_msg_rma call{};
    call.msg_iov = local;
    call.iov_count = 2;
    call.addr = caller.to_address;
    call.rma_iov = remote;
    call.rma_iov_count = access.parts.size();
    call.context = &access;
    call.data = data;
    const std::uint64_t flags = FI_COMPLETION | (access.fence ? FI_FENCE : 0) | (access.data ? FI_REMOTE_CQ_DATA : 0) |
                                (access.injected                       ? FI_INJECT
                                 : command.level == transmit           ? FI_TRANSMIT_COMPLETE
                                 : command.level >= delivery && !reads ? FI_DELIVERY_COMPLETE
                                                                       : 0);
    if (command.later != 0)
        return caller.defer(access, call, flags);
    return reads ? fi_readmsg(caller.ep, &call, flags) : fi_writemsg(caller.ep, &call, flags);
}

ssize_t Remote::post_atomic(const Caller& caller, Access& access, const Command& command)
{
    const Cell& cell = cells[access.cell];
    const std::size_t count = access.parts.size();
    alignas(8) unsigned char operands[16], compares[16];
    for (std::size_t i = 0; i < count; i++) {
        store(operands + i * cell.size, cell, access.operand);
        store(compares + i * cell.size, cell, access.operand - 1);
    }
    fi_rma_ioc remote[2];
    for (std::size_t i = 0; i < count; i++) {
        const Held& held = *find(access.parts[i].region->process, access.parts[i].region->slot);
        remote[i] = {held.base + cell.offset, 1, held.key};
    }
    const fi_datatype type = type_of(cell);
    const fi_op op = op_of(cell);
    if (access.silent)
        return fi_inject_atomic(caller.ep, operands, 1, caller.to_address, remote[0].addr, remote[0].key, type, op);
    // Operands are the application's until the operation has ended.
    access.content.assign(operands, operands + sizeof operands);
    access.content.insert(access.content.end(), compares, compares + sizeof compares);
    unsigned char* const mine = access.content.data();
    if (count == 1 && !access.fence && command.level == plain && command.later == 0) {
        if (cell.rule == Cell::counts_swaps)
            return fi_compare_atomic(caller.ep, mine, 1, nullptr, mine + 16, nullptr, access.buffer->at(), nullptr,
                                     caller.to_address, remote[0].addr, remote[0].key, type, op, &access);
        if (access.fetches)
            return fi_fetch_atomic(caller.ep, mine, 1, nullptr, access.buffer->at(), nullptr, caller.to_address,
                                   remote[0].addr, remote[0].key, type, op, &access);
        return fi_atomic(caller.ep, mine, 1, nullptr, caller.to_address, remote[0].addr, remote[0].key, type, op,
                         &access);
    }
    const fi_ioc operand{mine, count}, compare{mine + 16, count};
    const fi_ioc result{access.buffer->at(), count};
    const bool swaps = cell.rule == Cell::counts_swaps;
    const AtomicCall call{{&operand, nullptr, 1, caller.to_address, remote, count, type, op, &access, 0},
                          swaps ? &compare : nullptr,
                          access.fetches ? &result : nullptr,
                          FI_COMPLETION | (access.fence ? FI_FENCE : 0) |
                              (command.level >= delivery ? FI_DELIVERY_COMPLETE : 0)};
    return command.later != 0 ? caller.defer_atomic(access, call) : call.post(caller.ep, call.flags);
}

ssize_t Remote::AtomicCall::post(fid_ep* ep, std::uint64_t with) const
{
    auto* const to = const_cast<fi_ioc*>(result);
    if (compare != nullptr)
        return fi_compare_atomicmsg(ep, &message, compare, nullptr, 1, to, nullptr, 1, with);
    return result != nullptr ? fi_fetch_atomicmsg(ep, &message, to, nullptr, 1, with)
                             : fi_atomicmsg(ep, &message, with);
}

} // namespace swarm
