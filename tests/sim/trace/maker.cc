// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes up the traces of a job with a process on each node: more nodes than a test could run. Run by
// tests/sim/tools/pictures.sh and by hand.
//
// usage: trace_maker DIRECTORY X Y Z STEPS. In each step a rank computes, puts to the next and the previous rank, to
// one seven away and to one in the next unit, and waits for what these send; every 13th rank is slow, and rank 0 gets
// something from all.
#include "sim/trace/written.h"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace tofu::sim;
using namespace tofu::sim::trace;

struct Rank {
    uint64_t time = 2000;
    std::vector<Record> records;
};

class Dice {
  public:
    uint32_t below(uint32_t limit)
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 33) % limit;
    }

  private:
    uint64_t state_ = 17;
};

struct Message {
    uint64_t arrived = 0;
    uint32_t from = 0;
};

uint32_t arrival_of(uint32_t bytes)
{
    return 1000 + bytes * 10 / 63;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 6) {
        std::fputs("usage: trace_maker DIRECTORY X Y Z STEPS\n", stderr);
        return 2;
    }
    const auto number = [&](int i) { return static_cast<uint8_t>(std::atoi(argv[i])); };
    const Topology topology({number(2), number(3), number(4)}, 5);
    const uint32_t count = topology.num_nodes();
    Dice dice;
    std::vector<Rank> ranks(count);
    for (uint32_t rank = 0; rank < count; rank++)
        ranks[rank].records.push_back(some_record(Type::open_vcq, 1000, vcq_of(topology, rank)));
    for (int step = 0; step < std::atoi(argv[5]); step++) {
        std::vector<Message> last(count);
        const auto send = [&](uint32_t from, uint32_t to, uint32_t bytes, Op op) {
            Rank& sender = ranks[from];
            sender.records.push_back(some_post(sender.time, vcq_of(topology, to), bytes, arrival_of(bytes), op));
            const uint64_t arrived = sender.time + arrival_of(bytes);
            if (arrived > last[to].arrived)
                last[to] = {arrived, from};
            sender.time += 250;
        };
        for (uint32_t rank = 0; rank < count; rank++) {
            ranks[rank].time += 20'000 + dice.below(10'000) + (rank % 13 == 5 ? 25'000 : 0);
            const uint32_t bytes = 1u << (9 + dice.below(8));
            send(rank, (rank + 1) % count, bytes, Op::put);
            send(rank, (rank + count - 1) % count, bytes / 2, Op::put);
            send(rank, (rank + 7) % count, 8 << dice.below(3), Op::put_piggyback);
            send(rank, (rank + 12) % count, bytes * 2, rank % 5 == 0 ? Op::get : Op::put);
            if (rank % 3 == 0)
                send(rank, 0, 1, Op::armw8);
        }
        for (uint32_t rank = 0; rank < count; rank++) {
            Rank& own = ranks[rank];
            if (last[rank].arrived > own.time) {
                own.records.push_back(some_wait(own.time + 50, last[rank].arrived - own.time, End::post));
                own.time = last[rank].arrived + 60;
            }
        }
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        FileHeader header = some_header(rank, rank, topology);
        header.size = count;
        header.ended.raw = ranks[rank].time + 3000;
        const std::string path = std::string(argv[1]) + "/made-up." + std::to_string(rank) + ".trace";
        if (!write_trace(path, header, ranks[rank].records)) {
            std::perror(path.c_str());
            return 1;
        }
    }
    return 0;
}
