// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A libfabric program for tests of which TNIs the provider takes: opens a domain with as many endpoints as its argument
// says, and a scalable one with as many transmit contexts as the next says; prints "ready", waits until its standard
// input ends, and closes them. Run by tests/prov/utofu/tni.sh.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <unistd.h>

namespace {

void must(int result)
{
    if (result != 0) {
        std::fprintf(stderr, "cannot go on: %d\n", result);
        std::exit(1);
    }
}

} // namespace

int main(int argc, char** argv)
{
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("tofu");
    hints->caps = FI_MSG;
    std::vector<fid_ep*> contexts(argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 0);
    hints->ep_attr->tx_ctx_cnt = contexts.size();
    fi_info* info = nullptr;
    must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info));
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    must(fi_fabric(info->fabric_attr, &fabric, nullptr));
    must(fi_domain(fabric, info, &domain, nullptr));
    std::vector<fid_ep*> endpoints(argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 1);
    for (fid_ep*& ep : endpoints)
        must(fi_endpoint(domain, info, &ep, nullptr));
    fid_ep* scalable = nullptr;
    if (!contexts.empty())
        must(fi_scalable_ep(domain, info, &scalable, nullptr));
    for (std::size_t i = 0; i < contexts.size(); i++)
        must(fi_tx_context(scalable, static_cast<int>(i), nullptr, &contexts[i], nullptr));
    std::puts("ready");
    std::fflush(stdout);
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    for (fid_ep* ep : contexts)
        must(fi_close(&ep->fid));
    if (scalable != nullptr)
        must(fi_close(&scalable->fid));
    for (fid_ep* ep : endpoints)
        must(fi_close(&ep->fid));
    must(fi_close(&domain->fid));
    must(fi_close(&fabric->fid));
    fi_freeinfo(info);
    fi_freeinfo(hints);
}
