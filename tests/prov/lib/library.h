// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The uTofu library under a provider that is linked in: its functions, to be replaced or surrounded before the first
// endpoint is opened.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "linked.h"
#include "utofu/library.h"

namespace tofu::test {

/// As the provider calls them from now on.
inline vcq::Functions& library_functions()
{
    linked();
    int error = 0;
    const vcq::Backend* const backend = vcq::Backend::get(error);
    if (backend == nullptr) {
        std::fprintf(stderr, "no library to look at: %d\n", error);
        std::abort();
    }
    return const_cast<vcq::Functions&>(backend->functions());
}

template <auto Member, auto Around>
struct Surrounded;
template <class... Rest, int (*vcq::Functions::*Member)(utofu_vcq_hdl_t, Rest...), auto Around>
struct Surrounded<Member, Around> {
    static void install(vcq::Functions& functions)
    {
        next = functions.*Member;
        functions.*Member = [](utofu_vcq_hdl_t vcq, Rest... rest) -> int { return Around(next, vcq, rest...); };
    }
    static inline int (*next)(utofu_vcq_hdl_t, Rest...);
};

/// In place of each of these `Around` is called, with the function and what it was called with.
template <auto Around, auto... Members>
void surround(vcq::Functions& functions)
{
    (Surrounded<Members, Around>::install(functions), ...);
}

/// Everything that posts.
template <auto Around>
void surround_posts(vcq::Functions& functions)
{
    using vcq::Functions;
    surround<Around, &Functions::put, &Functions::put_piggyback, &Functions::get, &Functions::armw4, &Functions::armw8,
             &Functions::cswap4, &Functions::cswap8, &Functions::post_toq>(functions);
}

} // namespace tofu::test
