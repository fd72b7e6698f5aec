// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av and fi_eq: insertion in each form, removal, text, events, cost of many peers; names of services (fi_av(3),
// fi_eq(3), fi_getinfo(3)).
#include <gtest/gtest.h>

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utofu.h>

#include <memory>
#include <optional>
#include <thread>

#include "av/address.h"
#include "prov/lib/objects.h"

// fi_av_bind, wait sets and poll sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using namespace tofu::test;

/// An address as fi_getname gives it, of an endpoint that does not exist.
struct Address {
    std::uint32_t magic = 0x55664f54;
    std::uint16_t version = tofu::wire_version; // and no flags
    std::uint16_t index = 0;
    std::uint64_t target_vcq = 0;
    std::uint64_t nonce = 0;
};
static_assert(sizeof(Address) == 24);

Address made_up(std::uint64_t number)
{
    Address a;
    a.target_vcq = 0x200b16000f000000u + number;
    a.nonce = number * 77 + 1;
    a.index = static_cast<std::uint16_t>(number % 200);
    return a;
}

TEST(Addresses, AreNumberedInOrder)
{
    Objects o;
    Address some[5];
    for (unsigned i = 0; i < 5; i++)
        some[i] = made_up(i);
    fi_addr_t at[5] = {};
    EXPECT_EQ(fi_av_insert(o.av, some, 3, at, 0, nullptr), 3);
    EXPECT_EQ(fi_av_insert(o.av, some + 3, 2, nullptr, 0, nullptr), 2); // places may be left out
    for (fi_addr_t i = 0; i < 3; i++)
        EXPECT_EQ(at[i], i);
    for (fi_addr_t i = 0; i < 5; i++) {
        Address back;
        std::size_t length = sizeof(back);
        ASSERT_EQ(fi_av_lookup(o.av, i, &back, &length), 0);
        EXPECT_EQ(length, sizeof(back));
        EXPECT_EQ(std::memcmp(&back, &some[i], sizeof(back)), 0);
    }
    EXPECT_EQ(fi_av_insert(o.av, nullptr, 0, nullptr, 0, nullptr), 0);
}

TEST(Addresses, BadOnesAreMarkedAndDoNotHarmTheOthers)
{
    Objects o;
    Address some[3] = {made_up(1), made_up(2), made_up(3)};
    some[1].magic++;
    fi_addr_t at[3] = {};
    int errors[3] = {-1, -1, -1};
    EXPECT_EQ(fi_av_insert(o.av, some, 3, at, FI_SYNC_ERR, errors), 2);
    EXPECT_EQ(at[0], 0u);
    EXPECT_EQ(at[1], FI_ADDR_NOTAVAIL);
    EXPECT_NE(at[2], FI_ADDR_NOTAVAIL);
    EXPECT_EQ(errors[0], 0);
    EXPECT_NE(errors[1], 0);
    EXPECT_EQ(errors[2], 0);
    some[1].magic--;
    some[1].version++; // another version of the wire
    EXPECT_EQ(fi_av_insert(o.av, some + 1, 1, at, 0, nullptr), 0);
    EXPECT_EQ(at[0], FI_ADDR_NOTAVAIL);
}

TEST(Addresses, RemovedPlacesAreUsedAgainLowestFirst)
{
    Objects o;
    Address some[6];
    fi_addr_t at[6];
    for (unsigned i = 0; i < 6; i++)
        some[i] = made_up(i);
    ASSERT_EQ(fi_av_insert(o.av, some, 6, at, 0, nullptr), 6);
    fi_addr_t gone[] = {4, 1};
    EXPECT_EQ(fi_av_remove(o.av, gone, 2, 0), 0);
    EXPECT_EQ(fi_av_remove(o.av, gone, 2, 0), -FI_EINVAL);
    std::size_t length = sizeof(Address);
    EXPECT_EQ(fi_av_lookup(o.av, 1, some, &length), -FI_EINVAL);
    EXPECT_EQ(fi_av_lookup(o.av, 1000000, some, &length), -FI_EINVAL);
    fi_addr_t bad = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_remove(o.av, &bad, 1, 0), -FI_EINVAL);
    ASSERT_EQ(fi_av_insert(o.av, some, 3, at, 0, nullptr), 3);
    EXPECT_EQ(at[0], 1u);
    EXPECT_EQ(at[1], 4u);
    EXPECT_EQ(at[2], 6u);
}

/// A peer may have two indices (fi_av(3)). The later owner of one of them is another peer all the same.
TEST(Addresses, APlaceThatWasGivenToAnotherLeadsThere)
{
    Objects o;
    fid_cq* queue[3] = {o.open_queue(), o.open_queue(), o.open_queue()};
    for (fid_cq* cq : queue)
        o.add(cq, cq);
    Address first, second;
    std::size_t length = sizeof(first);
    ASSERT_EQ(fi_getname(&o.endpoints[1]->fid, &first, &length), 0);
    ASSERT_EQ(fi_getname(&o.endpoints[2]->fid, &second, &length), 0);
    fi_addr_t once = 1, again = 3;
    for (int use = 0; use < 2; use++) {
        ASSERT_EQ(fi_av_insert(o.av, &first, 1, &again, 0, nullptr), 1);
        ASSERT_EQ(again, 3u);
        if (use == 0)
            ASSERT_EQ(fi_av_remove(o.av, &again, 1, 0), 0);
    }
    char in[2][8] = {}, out[8] = "whose";
    const auto send = [&](fi_addr_t to, unsigned receiver) {
        ASSERT_EQ(fi_trecv(o.endpoints[receiver], in[receiver - 1], 8, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr), 0);
        o.post(queue[0], [&] { return fi_tinject(o.endpoints[0], out, 8, to, 0); });
        EXPECT_TRUE(eventually([&] {
            fi_cq_tagged_entry entry;
            return fi_cq_read(queue[receiver], &entry, 1) == 1;
        }));
    };
    send(once, 1);
    send(again, 1);
    ASSERT_EQ(fi_av_remove(o.av, &once, 1, 0), 0);
    ASSERT_EQ(fi_av_insert(o.av, &second, 1, &once, 0, nullptr), 1);
    ASSERT_EQ(once, 1u);
    send(once, 2);
    ASSERT_EQ(fi_av_remove(o.av, &once, 1, 0), 0);
    EXPECT_EQ(fi_tinject(o.endpoints[0], out, 8, once, 0), -FI_EINVAL);
}

TEST(Addresses, LookupTellsTheLengthAndCopiesWhatFits)
{
    Objects o;
    Address a = made_up(9);
    ASSERT_EQ(fi_av_insert(o.av, &a, 1, nullptr, 0, nullptr), 1);
    char small[8];
    std::size_t length = sizeof(small);
    EXPECT_EQ(fi_av_lookup(o.av, 0, small, &length), 0);
    EXPECT_EQ(length, sizeof(a));
    EXPECT_EQ(std::memcmp(small, &a, sizeof(small)), 0);
    char text[64];
    length = sizeof(text);
    EXPECT_EQ(fi_av_straddr(o.av, &a, text, &length), text);
    EXPECT_EQ(std::string(text).substr(0, 7), "tofu://");
    EXPECT_EQ(length, std::strlen(text) + 1);
}

TEST(Addresses, TextComesPackedOrByPointers)
{
    Wishes wishes;
    wishes.addr_format = FI_ADDR_STR;
    Objects o(wishes);
    fid_cq* cq = o.open_queue();
    fid_ep* a = o.add(cq, cq); // inserts what fi_getname gave: packed
    fid_ep* b = o.add(cq, cq);
    char names[2][64];
    for (auto [ep, name] : {std::pair{a, names[0]}, std::pair{b, names[1]}}) {
        std::size_t length = 64;
        ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
        EXPECT_EQ(length, std::strlen(name) + 1);
    }
    const char* pointers[] = {names[0], names[1]};
    fi_addr_t at[2];
    ASSERT_EQ(fi_av_insert(o.av, pointers, 2, at, 0, nullptr), 2);
    char back[64];
    std::size_t length = sizeof(back);
    ASSERT_EQ(fi_av_lookup(o.av, at[1], back, &length), 0);
    EXPECT_STREQ(back, names[1]);
    ASSERT_EQ(fi_av_insertsvc(o.av, names[0], nullptr, at, 0, nullptr), 1);
    // Text that is too short, or has no end, with nothing behind it.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    char* const end = static_cast<char*>(pages) + page;
    ASSERT_EQ(mprotect(end, page, PROT_NONE), 0);
    end[-2] = 'x';
    EXPECT_EQ(fi_av_insert(o.av, end - 2, 1, at, 0, nullptr), 0);
    std::memset(end - 64, 'x', 64);
    std::memcpy(end - 64, "tofu://", 7);
    EXPECT_EQ(fi_av_insert(o.av, end - 64, 1, at, 0, nullptr), 0);
    munmap(pages, 2 * page);
    EXPECT_EQ(fi_av_insert(o.av, "tofu://nonsense", 1, at, 0, nullptr), 0);
    EXPECT_LT(fi_av_insertsym(o.av, "node", 2, "1", 1, at, 0, nullptr), 0);
}

std::size_t heap_used()
{
#if __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 heap = mallinfo2();
#else
    const struct mallinfo heap = mallinfo(); // right up to 2 GiB
#endif
    return static_cast<std::size_t>(heap.uordblks) + static_cast<std::size_t>(heap.hblkhd);
}

TEST(Addresses, AWholeMachineTakesLittleMemory)
{
    constexpr std::size_t machine = 158976;
    std::vector<Address> all(machine);
    for (std::size_t i = 0; i < machine; i++)
        all[i] = made_up(i);
    Objects o;
    const std::size_t before = heap_used();
    ASSERT_EQ(fi_av_insert(o.av, all.data(), machine, nullptr, 0, nullptr), static_cast<int>(machine));
    EXPECT_LT(heap_used() - before, std::size_t{16} << 20);
    std::size_t length = sizeof(Address);
    Address back;
    ASSERT_EQ(fi_av_lookup(o.av, machine - 1, &back, &length), 0);
    EXPECT_EQ(back.nonce, all.back().nonce);
}

TEST(Addresses, TheWayBackFromASenderIsSmallAndSeesChanges)
{
    constexpr std::size_t machine = 158976;
    Objects o;
    fid_cq* cq = o.open_queue();
    fid_ep* ep = o.add(cq, cq); // at place 0
    char name[64];
    std::size_t length = sizeof(name);
    ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
    std::vector<Address> all(machine);
    for (std::size_t i = 0; i < machine; i++)
        all[i] = made_up(i);
    const auto source_of_a_message = [&](fi_addr_t to) {
        std::uint64_t out = 1, in = 0;
        fi_cq_tagged_entry entry{};
        fi_addr_t from = FI_ADDR_UNSPEC;
        EXPECT_EQ(fi_recv(ep, &in, sizeof(in), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
        Objects::post(cq, [&] { return fi_inject(ep, &out, sizeof(out), to); });
        EXPECT_TRUE(eventually([&] { return fi_cq_readfrom(cq, &entry, 1, &from) == 1; }));
        return from;
    };
    EXPECT_EQ(source_of_a_message(0), 0u);
    const std::size_t before = heap_used();
    ASSERT_EQ(fi_av_insert(o.av, all.data(), machine, nullptr, 0, nullptr), static_cast<int>(machine));
    EXPECT_EQ(source_of_a_message(0), 0u);
    EXPECT_LT(heap_used() - before, std::size_t{16} << 20);
    // The same endpoint at another place, while its first one goes to another endpoint.
    fi_addr_t place = 0;
    ASSERT_EQ(fi_av_remove(o.av, &place, 1, 0), 0);
    const Address other = made_up(machine);
    ASSERT_EQ(fi_av_insert(o.av, &other, 1, &place, 0, nullptr), 1);
    EXPECT_EQ(place, 0u);
    ASSERT_EQ(fi_av_insert(o.av, name, 1, &place, 0, nullptr), 1);
    EXPECT_EQ(place, machine + 1);
    EXPECT_EQ(source_of_a_message(place), place);
    // Many come and go.
    for (fi_addr_t i = 1; i <= machine; i++)
        ASSERT_EQ(fi_av_remove(o.av, &i, 1, 0), 0);
    ASSERT_EQ(fi_av_insert(o.av, all.data(), machine, nullptr, 0, nullptr), static_cast<int>(machine));
    EXPECT_EQ(source_of_a_message(place), place);
}

fid_eq* open_events(Objects& o, fi_wait_obj wait = FI_WAIT_UNSPEC, std::uint64_t flags = FI_WRITE)
{
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    attr.flags = flags;
    fid_eq* eq = nullptr;
    Objects::must(fi_eq_open(o.fabric, &attr, &eq, nullptr));
    return eq;
}

TEST(Addresses, AsynchronousInsertionReportsToItsEventQueue)
{
    Objects o;
    fi_av_attr attr{};
    attr.flags = FI_EVENT;
    fid_av* av = nullptr;
    ASSERT_EQ(fi_av_open(o.domain, &attr, &av, nullptr), 0);
    Address some[2] = {made_up(1), made_up(2)};
    some[0].magic = 0;
    EXPECT_EQ(fi_av_insert(av, some, 2, nullptr, 0, nullptr), -FI_ENOEQ);
    fid_eq* eq = open_events(o);
    ASSERT_EQ(fi_av_bind(av, &eq->fid, 0), 0);
    EXPECT_EQ(fi_close(&eq->fid), -FI_EBUSY);
    int context = 0;
    fi_addr_t at[2];
    EXPECT_EQ(fi_av_insert(av, some, 2, at, 0, &context), 0);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAVAIL);
    fi_eq_err_entry error{};
    ASSERT_EQ(fi_eq_readerr(eq, &error, 0), static_cast<ssize_t>(sizeof(error)));
    EXPECT_EQ(error.data, 0u);
    EXPECT_EQ(error.context, &context);
    EXPECT_EQ(error.fid, &av->fid);
    EXPECT_NE(error.err, 0);
    ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    EXPECT_EQ(event, static_cast<std::uint32_t>(FI_AV_COMPLETE));
    EXPECT_EQ(entry.data, 1u);
    EXPECT_EQ(entry.context, &context);
    EXPECT_EQ(at[0], FI_ADDR_NOTAVAIL);
    EXPECT_EQ(fi_close(&av->fid), 0);
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

/// Another region may get the address of one that is closed, which is all that an event says of it.
TEST(Events, OfARegionThatIsClosedAreGone)
{
    Objects lasting; // the domain uses the queue until it is closed
    fid_eq* eq = open_events(lasting);
    std::optional<Objects> o(std::in_place, Wishes{}, lasting.fabric);
    constexpr std::uint64_t reg_mr = std::uint64_t{1} << 59; // FI_REG_MR: libfabric 2 deprecates the name
    ASSERT_EQ(fi_domain_bind(o->domain, &eq->fid, reg_mr), 0);
    std::uint64_t words[2] = {};
    fid_mr* regions[2] = {};
    for (unsigned i = 0; i < 2; i++)
        ASSERT_EQ(fi_mr_reg(o->domain, &words[i], 8, FI_REMOTE_WRITE, 0, i, 0, &regions[i], nullptr), 0);
    EXPECT_EQ(fi_close(&regions[0]->fid), 0);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    EXPECT_EQ(entry.fid, &regions[1]->fid);
    EXPECT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
    EXPECT_EQ(fi_close(&regions[1]->fid), 0);
    o.reset();
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

/// fi_av(3): "any events queued on an event queue referencing the AV are left untouched".
TEST(Events, OfAVectorThatIsClosedStay)
{
    Objects o;
    fid_eq* eq = open_events(o);
    fi_av_attr attr{};
    attr.flags = FI_EVENT;
    fid_av* av = nullptr;
    ASSERT_EQ(fi_av_open(o.domain, &attr, &av, nullptr), 0);
    ASSERT_EQ(fi_av_bind(av, &eq->fid, 0), 0);
    Address some[2] = {made_up(1), made_up(2)};
    some[0].magic = 0; // leaves an error, too
    EXPECT_EQ(fi_av_insert(av, some, 2, nullptr, 0, nullptr), 0);
    EXPECT_EQ(fi_close(&av->fid), 0);
    fi_eq_err_entry error{};
    EXPECT_EQ(fi_eq_readerr(eq, &error, 0), static_cast<ssize_t>(sizeof(error)));
    EXPECT_EQ(error.fid, &av->fid);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    EXPECT_EQ(event, std::uint32_t{FI_AV_COMPLETE});
    EXPECT_EQ(entry.fid, &av->fid);
    EXPECT_EQ(entry.data, 1u);
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

TEST(Events, OfObjectsThatAreClosedTakeNoMemory)
{
    Objects lasting;
    fid_eq* eq = open_events(lasting);
    std::optional<Objects> o(std::in_place, Wishes{}, lasting.fabric);
    constexpr std::uint64_t reg_mr = std::uint64_t{1} << 59;
    ASSERT_EQ(fi_domain_bind(o->domain, &eq->fid, reg_mr), 0);
    std::uint64_t word = 0;
    const auto come_and_go = [&](unsigned regions) {
        for (unsigned i = 0; i < regions; i++) {
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(o->domain, &word, 8, FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr), 0);
            EXPECT_EQ(fi_close(&mr->fid), 0);
        }
    };
    come_and_go(100);
    const std::size_t before = heap_used();
    come_and_go(2000);
    EXPECT_LT(heap_used(), before + 2000 * sizeof(fi_eq_entry));
    o.reset();
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

TEST(Events, AreReadInOrderAndMayBePeekedAt)
{
    Objects o;
    fid_eq* eq = open_events(o);
    std::uint32_t event = 0;
    fi_eq_entry entry{}, got{};
    EXPECT_EQ(fi_eq_read(eq, &event, &got, sizeof(got), 0), -FI_EAGAIN);
    fi_eq_err_entry error{};
    EXPECT_EQ(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);
    char text[2] = {'x', 'x'}; // room for the end of a string
    EXPECT_STREQ(fi_eq_strerror(eq, FI_EINVAL, nullptr, text, 1), fi_strerror(FI_EINVAL));
    EXPECT_EQ(text[0], '\0');
    EXPECT_EQ(text[1], 'x');
    // of a join
    EXPECT_STREQ(fi_eq_strerror(eq, UTOFU_ERR_MRQ_PEER, nullptr, nullptr, 0), "MRQ: the peer process is gone");
    for (std::uint64_t i = 0; i < 5; i++) {
        entry.data = i;
        ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    }
    for (std::uint64_t i = 0; i < 5; i++) {
        ASSERT_EQ(fi_eq_read(eq, &event, &got, sizeof(got), FI_PEEK), static_cast<ssize_t>(sizeof(got)));
        EXPECT_EQ(got.data, i);
        EXPECT_EQ(fi_eq_read(eq, &event, &got, 1, 0), -FI_ETOOSMALL);
        ASSERT_EQ(fi_eq_sread(eq, &event, &got, sizeof(got), 1000, 0), static_cast<ssize_t>(sizeof(got)));
        EXPECT_EQ(got.data, i);
        EXPECT_EQ(event, static_cast<std::uint32_t>(FI_NOTIFY));
    }
    EXPECT_EQ(fi_eq_sread(eq, &event, &got, sizeof(got), 10, 0), -FI_EAGAIN);
    std::thread writer([&] { fi_eq_write(eq, FI_SHUTDOWN, &entry, sizeof(entry), 0); });
    EXPECT_EQ(fi_eq_sread(eq, &event, &got, sizeof(got), -1, 0), static_cast<ssize_t>(sizeof(got)));
    writer.join();
    EXPECT_EQ(fi_close(&eq->fid), 0);
    fid_eq* closed = open_events(o, FI_WAIT_NONE, 0);
    EXPECT_LT(fi_eq_write(closed, FI_NOTIFY, &entry, sizeof(entry), 0), 0);
    EXPECT_EQ(fi_close(&closed->fid), 0);
}

std::unique_ptr<fi_info, void (*)(fi_info*)> tofu_hints()
{
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("tofu");
    return {hints, fi_freeinfo};
}

TEST(Names, AServiceIsFoundWhileItsEndpointLives)
{
    Wishes wishes;
    wishes.service = "av_test:" + std::to_string(getpid());
    auto find = [&] {
        fi_info* found = nullptr;
        const int result =
            fi_getinfo(FI_VERSION(1, 17), "localhost", wishes.service.c_str(), 0, tofu_hints().get(), &found);
        std::string address;
        if (result == 0) {
            address.assign(static_cast<char*>(found->dest_addr), found->dest_addrlen);
            fi_freeinfo(found);
        }
        return address;
    };
    EXPECT_EQ(find(), "");
    {
        Objects o(wishes);
        EXPECT_EQ(find(), "");
        fid_cq* cq = o.open_queue();
        fid_ep* ep = o.add(cq, cq);
        char name[64];
        std::size_t length = sizeof(name);
        ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
        EXPECT_EQ(find(), std::string(name, length));
    }
    EXPECT_EQ(find(), "");
}

/// A lookup of a service leaves a connection that is not accepted. Any number of lookups is possible.
TEST(Names, AServiceIsFoundByAnyNumberOfClients)
{
    Wishes wishes;
    wishes.service = "av_test:" + std::to_string(getpid());
    Objects o(wishes);
    fid_cq* cq = o.open_queue();
    o.add(cq, cq);
    for (unsigned client = 0; client < 5000; client++) {
        fi_info* found = nullptr;
        ASSERT_EQ(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", wishes.service.c_str(), 0, tofu_hints().get(), &found), 0)
            << client;
        EXPECT_NE(found->dest_addr, nullptr);
        fi_freeinfo(found);
        EXPECT_EQ(fi_cq_read(cq, nullptr, 0), -FI_EAGAIN); // the server looks after its endpoint now and then
    }
}

/// fi_getinfo(3), FI_SOURCE: what it gives for a service is the address of the endpoint that is opened with it, as soon
/// as there is one. fi_loopback of libfabric's tests inserts it to send to itself.
TEST(Names, TheSourceOfAServiceIsItsHolder)
{
    for (const std::uint32_t format : {std::uint32_t{FI_FORMAT_UNSPEC}, std::uint32_t{FI_ADDR_STR}}) {
        Wishes wishes;
        wishes.addr_format = format;
        wishes.service = "av_test:" + std::to_string(getpid());
        Objects o(wishes);
        fid_cq* cq = o.open_queue();
        fi_addr_t self = 0;
        EXPECT_EQ(fi_av_insert(o.av, o.info->src_addr, 1, &self, 0, nullptr), 0);
        EXPECT_EQ(self, FI_ADDR_NOTAVAIL);
        fid_ep* ep = o.add(cq, cq);
        ASSERT_EQ(fi_av_insert(o.av, o.info->src_addr, 1, &self, 0, nullptr), 1);
        std::uint64_t out = 4711, in = 0;
        ASSERT_EQ(fi_recv(ep, &in, sizeof(in), nullptr, self, nullptr), 0);
        Objects::post(cq, [&] { return fi_inject(ep, &out, sizeof(out), self); });
        fi_cq_tagged_entry entry{};
        EXPECT_TRUE(eventually([&] { return fi_cq_read(cq, &entry, 1) == 1; }));
        EXPECT_EQ(in, out);
    }
}

/// An endpoint that cannot be enabled for want of descriptors can be enabled when there are some.
TEST(Names, WhatCannotBeAnnouncedIsNotEnabled)
{
    Wishes wishes;
    wishes.service = "av_test:" + std::to_string(getpid());
    Objects o(wishes);
    fid_cq* cq = o.open_queue();
    fid_ep* ep = nullptr;
    o.must(fi_endpoint(o.domain, o.info, &ep, nullptr));
    o.endpoints.push_back(ep);
    o.must(fi_ep_bind(ep, &o.av->fid, 0));
    o.must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit tight{128, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    std::vector<int> taken;
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
        taken.push_back(fd);
    int result = -FI_EMFILE;
    while (result != 0 && taken.size() >= 2) {
        result = fi_enable(ep);
        EXPECT_NE(result, -FI_EOPBADSTATE);
        // The simulator keeps one for each area that was registered.
        for (int i = 0; i < 2; i++, taken.pop_back())
            close(taken.back());
    }
    for (int fd : taken)
        close(fd);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(result, 0);
}

/// The text of an address is as long as its length says (fi_getinfo(3), src_addrlen): nothing is read behind it.
TEST(Names, TextWithoutAnEndIsReadToItsLength)
{
    Wishes wishes;
    wishes.addr_format = FI_ADDR_STR;
    Objects o(wishes);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(munmap(static_cast<char*>(memory) + page, page), 0);
    const std::string text = "tofu://0000000000000000.0000.00";
    char* const at = static_cast<char*>(memory) + page - text.size();
    text.copy(at, text.size());
    fi_info asked = *o.info;
    asked.src_addr = at;
    asked.src_addrlen = text.size();
    fid_ep* ep = nullptr;
    ASSERT_EQ(fi_endpoint(o.domain, &asked, &ep, nullptr), 0);
    EXPECT_EQ(fi_close(&ep->fid), 0);
    munmap(memory, page);
}

/// fi_getinfo(3): a service is optional. fi_multi_ep of libfabric's tests names its own host alone.
TEST(Names, ANodeWithoutServiceIsNoPeerButMustBeKnown)
{
    fi_info* found = nullptr;
    ASSERT_EQ(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, 0, tofu_hints().get(), &found), 0);
    EXPECT_EQ(found->dest_addr, nullptr);
    EXPECT_NE(found->src_addr, nullptr);
    fi_freeinfo(found);
    EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), "no.such.host.invalid", nullptr, 0, tofu_hints().get(), &found),
              -FI_ENODATA);
}

} // namespace
