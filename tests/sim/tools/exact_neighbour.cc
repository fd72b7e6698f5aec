// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program of another job, beside one in exact mode, for tests/sim/tools/exact_random.sh: it has locked the file of
// endpoint numbers (fi_tofu(7), FILES) most of the time, until it is ended. All jobs of a user share that file.
//
// usage: exact_neighbour
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

namespace {

void sleep_for_us(long us)
{
    const timespec time{0, us * 1000};
    (void)::nanosleep(&time, nullptr);
}

} // namespace

int main()
{
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/tofu-fi-endpoints-%u", ::geteuid());
    const pid_t parent = ::getppid();
    while (::getppid() == parent) {
        const int file = ::open(path, O_RDWR | O_CLOEXEC); // not created: its users remove it
        struct flock change {};
        change.l_type = F_WRLCK;
        change.l_len = 1; // the byte that is locked for a change
        if (file >= 0 && ::fcntl(file, F_OFD_SETLK, &change) == 0)
            sleep_for_us(2000);
        if (file >= 0)
            (void)::close(file);
        sleep_for_us(300);
    }
    return 0;
}
