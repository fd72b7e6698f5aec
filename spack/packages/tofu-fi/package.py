# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A Spack recipe for the provider; needs Spack 0.23 or later (languages as dependencies).
#
#   spack repo add PATH/spack
#   spack install --no-checksum tofu-fi            in the directory that has tofu-fi-1.0.0.tar.xz (make dist)
#   spack dev-build tofu-fi@1.0.0                  or in the tree itself
#   spack load tofu-fi                             sets FI_PROVIDER_PATH
import os

try:  # where Spack 1 has it; before, it came with spack.package
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:
    pass
from spack.package import *


class TofuFi(AutotoolsPackage):
    """A libfabric provider for the Tofu interconnect D (Fugaku, PRIMEHPC FX1000), and a simulated Tofu interconnect
    for one Linux machine."""

    homepage = "file://{0}/README.md".format(os.getcwd())
    url = "file://{0}/tofu-fi-1.0.0.tar.xz".format(os.getcwd())
    manual_download = True

    version("1.0.0")

    variant("sim", default=True, description="Build the simulated interconnect (libtofucom.so, tofu-sim)")
    variant("portable", default=False, description="Ask for no newer system than glibc 2.28, and for no libstdc++")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("libtool", type="build")
    depends_on("m4", type="build")
    depends_on("libfabric@1.17:")
    depends_on("hwloc@2.1:2")

    conflicts("%gcc@:11", msg="C++20 with std::atomic_ref is needed: gcc 12 or later")
    conflicts("%clang@:13", msg="C++20 with std::atomic_ref is needed: clang 14 or later")
    conflicts("platform=darwin", msg="Linux only")

    def configure_args(self):
        args = ["--without-mpi", "--with-libfabric={0}".format(self.spec["libfabric"].prefix)]
        args += self.enable_or_disable("sim")
        args += self.enable_or_disable("portable")
        return args

    # Neither GoogleTest nor MPI is a dependency: the suite is run in the tree (tools/test).
    def check(self):
        pass

    @run_after("install")
    def check_install(self):
        if self.run_tests and self.spec.satisfies("+sim"):
            tofu_check = Executable(self.prefix.bin.join("tofu-check"))
            tofu_check("--library", join_path(self.prefix.lib, "libtofucom.so"), "--no-figures")

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", join_path(self.prefix.lib, "libfabric"))

    def setup_dependent_run_environment(self, env, dependent_spec):
        self.setup_run_environment(env)
