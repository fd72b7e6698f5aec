// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See names.h. unix(7) for abstract names, proc(5) for /proc/net/unix.
#include "api/names.h"

#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/log.h"
#include "utofu/library.h"

namespace tofu::names {

namespace {

constexpr std::size_t prefix_size = 64; ///< its text with the final zero: 53 at most
constexpr unsigned most_at_once = 4096; ///< connections; what the kernel keeps by default

/// "tofu-fi/USER/JOB/KEY/", what all names under a key begin with.
int prefix_of(std::uint64_t key, char* text, std::size_t size) noexcept
{
    return std::snprintf(text, size, "tofu-fi/%u/%016" PRIx64 "/%016" PRIx64 "/", geteuid(), job_key(), key);
}

socklen_t fill(sockaddr_un& name, const char* text) noexcept
{
    name = {};
    name.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(text);
    std::memcpy(name.sun_path + 1, text, length); // a leading zero: abstract
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

/// Any user may choose any abstract name: only a name of this user is accepted.
bool is_ours(const char* text) noexcept
{
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0)
        return false;
    sockaddr_un name;
    const socklen_t length = fill(name, text);
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool ours = connect(socket, reinterpret_cast<sockaddr*>(&name), length) == 0 &&
                      getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
    close(socket);
    return ours;
}

bool same_host(const sockaddr* a, const sockaddr* b) noexcept
{
    if (a == nullptr || b == nullptr || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool is_loopback(const sockaddr* a) noexcept
{
    return a->sa_family == AF_INET &&
           ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

} // namespace

std::uint64_t job_key() noexcept
{
    int error = 0;
    const vcq::Backend* const backend = vcq::Backend::get(error);
    const char* const job = backend && backend->functions().job ? backend->functions().job() : nullptr;
    return job != nullptr ? key_of(job) : 0;
}

std::uint64_t key_of(const char* service) noexcept
{
    Hash hash;
    hash.add(service);
    return hash.value != 0 ? hash.value : 1;
}

bool is_here(const char* node, bool numeric) noexcept
{
    addrinfo hints{};
    hints.ai_flags = numeric ? AI_NUMERICHOST : 0;
    addrinfo* found = nullptr;
    if (getaddrinfo(node, nullptr, &hints, &found) != 0)
        return false;
    ifaddrs* own = nullptr;
    bool here = false;
    if (getifaddrs(&own) == 0) {
        for (const addrinfo* a = found; a != nullptr && !here; a = a->ai_next) {
            here = is_loopback(a->ai_addr);
            for (const ifaddrs* i = own; i != nullptr && !here; i = i->ifa_next)
                here = same_host(a->ai_addr, i->ifa_addr);
        }
        freeifaddrs(own);
    }
    freeaddrinfo(found);
    return here;
}

bool find(std::uint64_t key, EndpointAddress& address) noexcept
{
    char prefix[prefix_size];
    const auto length = static_cast<std::size_t>(prefix_of(key, prefix, sizeof(prefix)));
    FILE* list = std::fopen("/proc/net/unix", "re");
    if (list == nullptr)
        return false;
    bool found = false;
    char line[512];
    while (!found && std::fgets(line, sizeof(line), list) != nullptr) {
        char* name = std::strchr(line, '@'); // the form in which abstract names are listed
        if (name == nullptr || std::strncmp(++name, prefix, length) != 0)
            continue;
        name[std::strcspn(name, "\n")] = '\0';
        found = std::strlen(name) < sizeof(sockaddr_un::sun_path) - 1 && address_from_text(name + length, address) &&
                is_ours(name);
    }
    std::fclose(list);
    return found;
}

Announcement::~Announcement()
{
    if (is_open()) // also for a child of fork that has not closed its copy yet
        (void)shutdown(socket_.get(), SHUT_RDWR);
    socket_.close();
}

void Announcement::clear() noexcept
{
    for (unsigned i = 0; i < most_at_once; i++) {
        const int connection = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0)
            return;
        close(connection);
    }
}

int Announcement::open(std::uint64_t key, const EndpointAddress& address) noexcept
{
    char text[sizeof(sockaddr_un::sun_path)];
    const int length = prefix_of(key, text, sizeof(text));
    static_assert(sizeof(text) > prefix_size - 11 + address_text_size - 1); // one more for the leading zero
    address_to_text(address, text + length);
    socket_.hold(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!is_open())
        return errno == ENOMEM || errno == ENOBUFS ? -FI_ENOMEM : -FI_EMFILE;
    sockaddr_un name;
    const socklen_t size = fill(name, text);
    // A client needs only the name's existence and its user: clear() accepts its connection later.
    if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 || listen(socket_.get(), INT_MAX) != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint: cannot publish its address under a name: %s\n", std::strerror(errno));
        socket_.close();
        return -FI_EADDRNOTAVAIL;
    }
    return 0;
}

} // namespace tofu::names
