// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses as text and in the form of the application. See address.h.
#include "av/address.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace tofu {

std::uint8_t address_flags(std::uint64_t caps) noexcept
{
    return (caps & FI_RMA_EVENT) ? address_counts_events : 0;
}

void address_to_text(const EndpointAddress& address, char* text) noexcept
{
    std::snprintf(text, address_text_size, "tofu://%016" PRIx64 ".%02x%02x%02x.%016" PRIx64, address.target_vcq,
                  address.flags, address.further, address.index, address.nonce);
}

bool scan_address(const char* text, EndpointAddress& address) noexcept
{
    std::uint64_t target_vcq = 0, nonce = 0;
    unsigned index = 0;
    int end = 0;
    if (std::sscanf(text, "tofu://%16" SCNx64 ".%6x.%16" SCNx64 "%n", &target_vcq, &index, &nonce, &end) != 3 ||
        text[end] != '\0')
        return false;
    address = make_address(target_vcq, nonce, index & 0xff, index >> 8 & 0xff, index >> 16);
    return true;
}

bool address_from_text(const char* text, EndpointAddress& address) noexcept
{
    return scan_address(text, address) && address.target_vcq != 0 && address.is_valid();
}

std::uint64_t name_key_of(const fi_info& info) noexcept
{
    EndpointAddress source{};
    if (info.src_addr == nullptr)
        return 0;
    if (info.addr_format == FI_ADDR_STR) {
        char text[address_text_size] = {}; // the application's need not end with a zero
        std::memcpy(text, info.src_addr, std::min(info.src_addrlen, sizeof(text) - 1));
        (void)scan_address(text, source);
    } else if (info.src_addrlen == sizeof(source)) {
        std::memcpy(&source, info.src_addr, sizeof(source));
    }
    return source.magic == address_magic && source.target_vcq == 0 ? source.nonce : 0;
}

AddressForm::AddressForm(const EndpointAddress& address, bool textual) noexcept
    : size(textual ? address_text_size : sizeof(address))
{
    if (textual)
        address_to_text(address, bytes);
    else
        std::memcpy(bytes, &address, sizeof(address));
}

int write_address(const EndpointAddress& own, std::uint32_t format, void* buffer, std::size_t* length) noexcept
{
    if (length == nullptr)
        return -FI_EINVAL;
    const AddressForm form(own, format == FI_ADDR_STR);
    const std::size_t room = *length;
    *length = form.size;
    if (buffer == nullptr || room < form.size)
        return -FI_ETOOSMALL;
    std::memcpy(buffer, form.bytes, form.size);
    return 0;
}

} // namespace tofu
