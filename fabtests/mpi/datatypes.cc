// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, derived datatypes: data that are not contiguous, on either side.
#include "harness.h"

#include <cstddef>

namespace mpitest {

void datatype_vector(const World& world)
{
    for (const int n : {4, 50, 400}) {
        std::vector<double> matrix(static_cast<size_t>(n) * n);
        for (int i = 0; i < n * n; i++)
            matrix[static_cast<size_t>(i)] = world.rank * 1e6 + i;
        MPI_Datatype column;
        MPI_Type_vector(n, 1, n, MPI_DOUBLE, &column);
        MPI_Type_commit(&column);
        // A column goes out, a contiguous row comes in; then the reverse.
        std::vector<double> row(static_cast<size_t>(n), -1.0);
        MPI_Sendrecv(&matrix[static_cast<size_t>(n / 2)], 1, column, world.next(), 1, row.data(), n, MPI_DOUBLE,
                     world.previous(), 1, world.comm, MPI_STATUS_IGNORE);
        bool good = true;
        for (int i = 0; i < n; i++)
            good = good && row[static_cast<size_t>(i)] == world.previous() * 1e6 + i * n + n / 2;
        MPITEST_CHECK(good);
        std::vector<double> target(static_cast<size_t>(n) * n, -1.0);
        MPI_Sendrecv(row.data(), n, MPI_DOUBLE, world.next(), 2, &target[1], 1, column, world.previous(), 2, world.comm,
                     MPI_STATUS_IGNORE);
        const int origin = (world.previous() + world.size - 1) % world.size;
        good = true;
        for (int i = 0; i < n * n; i++) {
            const double expected = i % n == 1 ? origin * 1e6 + (i / n) * n + n / 2 : -1.0;
            good = good && target[static_cast<size_t>(i)] == expected; // and nothing beside the column
        }
        MPITEST_CHECK(good);
        MPI_Type_free(&column);
    }
}

void datatype_struct(const World& world)
{
    struct Record {
        char letter;
        double value;
        int numbers[3];
        short last;
    };
    const int lengths[] = {1, 1, 3, 1};
    const MPI_Aint places[] = {offsetof(Record, letter), offsetof(Record, value), offsetof(Record, numbers),
                               offsetof(Record, last)};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT};
    MPI_Datatype fields;
    MPI_Datatype record;
    MPI_Type_create_struct(4, lengths, places, types, &fields);
    MPI_Type_create_resized(fields, 0, sizeof(Record), &record);
    MPI_Type_commit(&record);
    for (const int count : {1, 10, 20'000}) {
        std::vector<Record> out(static_cast<size_t>(count));
        std::vector<Record> in(static_cast<size_t>(count));
        for (int i = 0; i < count; i++) {
            out[static_cast<size_t>(i)] = {static_cast<char>('a' + i % 26),
                                           world.rank + i / 3.0,
                                           {i, -i, world.rank},
                                           static_cast<short>(i % 1000)};
        }
        MPI_Sendrecv(out.data(), count, record, world.next(), 1, in.data(), count, record, world.previous(), 1,
                     world.comm, MPI_STATUS_IGNORE);
        bool good = true;
        for (int i = 0; i < count; i++) {
            const Record& r = in[static_cast<size_t>(i)];
            good = good && r.letter == 'a' + i % 26 && r.value == world.previous() + i / 3.0 && r.numbers[0] == i &&
                   r.numbers[1] == -i && r.numbers[2] == world.previous() && r.last == i % 1000;
        }
        MPITEST_CHECK(good);
    }
    int size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_size(record, &size);
    MPI_Type_get_extent(record, &lower, &extent);
    MPITEST_CHECK(size == 1 + 8 + 12 + 2 && extent == sizeof(Record));
    MPI_Type_free(&record);
    MPI_Type_free(&fields);
}

void datatype_indexed(const World& world)
{
    constexpr int n = 600;
    std::vector<int> out(n);
    std::vector<int> in(n, -1);
    for (int i = 0; i < n; i++)
        out[static_cast<size_t>(i)] = world.rank * 10'000 + i;
    std::vector<int> lengths;
    std::vector<int> places;
    for (int place = 0; place + 20 < n; place += 20) {
        lengths.push_back(1 + place / 20 % 7);
        places.push_back(place);
    }
    MPI_Datatype spots;
    MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_INT, &spots);
    MPI_Type_commit(&spots);
    MPI_Sendrecv(out.data(), 1, spots, world.next(), 1, in.data(), 1, spots, world.previous(), 1, world.comm,
                 MPI_STATUS_IGNORE);
    bool good = true;
    for (int i = 0; i < n; i++) {
        const bool inside = i / 20 < static_cast<int>(lengths.size()) && i % 20 < 1 + i / 20 % 7;
        good = good && in[static_cast<size_t>(i)] == (inside ? world.previous() * 10'000 + i : -1);
    }
    MPITEST_CHECK(good);

    // Packed on one side, unpacked by the type on the other, and the reverse.
    int bytes = 0;
    MPI_Pack_size(1, spots, world.comm, &bytes);
    std::vector<char> packed(static_cast<size_t>(bytes));
    int position = 0;
    MPI_Pack(out.data(), 1, spots, packed.data(), bytes, &position, world.comm);
    std::vector<int> again(n, -1);
    MPI_Sendrecv(packed.data(), position, MPI_PACKED, world.next(), 2, again.data(), 1, spots, world.previous(), 2,
                 world.comm, MPI_STATUS_IGNORE);
    MPITEST_CHECK(again == in);
    MPI_Type_free(&spots);

    // A block out of the middle of a cube.
    const int whole[3] = {8, 9, 10};
    const int part[3] = {3, 4, 5};
    const int start[3] = {2, 3, 1};
    MPI_Datatype block;
    MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_C, MPI_INT, &block);
    MPI_Type_commit(&block);
    std::vector<int> cube(720);
    for (int i = 0; i < 720; i++)
        cube[static_cast<size_t>(i)] = world.rank * 1000 + i;
    std::vector<int> linear(60, -1);
    MPI_Sendrecv(cube.data(), 1, block, world.next(), 3, linear.data(), 60, MPI_INT, world.previous(), 3, world.comm,
                 MPI_STATUS_IGNORE);
    good = true;
    for (int i = 0; i < 60; i++) {
        const int x = i / 20 + 2;
        const int y = i / 5 % 4 + 3;
        const int z = i % 5 + 1;
        good = good && linear[static_cast<size_t>(i)] == world.previous() * 1000 + (x * 9 + y) * 10 + z;
    }
    MPITEST_CHECK(good);
    MPI_Type_free(&block);
}

void datatype_truncation(const World& world)
{
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(world.comm, &before);
    MPI_Comm_set_errhandler(world.comm, MPI_ERRORS_RETURN);
    for (const int size : {64, 200'000}) {
        std::vector<uint8_t> out(static_cast<size_t>(size));
        std::vector<uint8_t> in(static_cast<size_t>(size), 0x5a);
        MPI_Request receive;
        MPI_Irecv(in.data(), size / 2, MPI_BYTE, world.previous(), 4, world.comm, &receive);
        MPI_Barrier(world.comm);
        MPI_Request send;
        MPI_Isend(out.data(), size, MPI_BYTE, world.next(), 4, world.comm, &send);
        MPI_Status status;
        const int rc = MPI_Wait(&receive, &status);
        int error_class = MPI_SUCCESS;
        MPI_Error_class(rc, &error_class);
        MPITEST_CHECK(error_class == MPI_ERR_TRUNCATE);
        bool intact = true; // nothing may be written behind the buffer
        for (int i = size / 2; i < size; i++)
            intact = intact && in[static_cast<size_t>(i)] == 0x5a;
        MPITEST_CHECK(intact);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Barrier(world.comm);
    }
    MPI_Comm_set_errhandler(world.comm, before);
    MPI_Errhandler_free(&before);
}

} // namespace mpitest
