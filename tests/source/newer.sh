#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What the headers of glibc 2.28 and Linux 4.18, those of the machine, do not have is used only in files that say what it
# is (#ifndef) or choose by the C library (__GLIBC_PREREQ). What is called is looked at in tests/prov/whole/portable.sh.
# Called by: make check. Reads the sources.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/sources"

newer='MADV_(COLD|PAGEOUT|POPULATE_(READ|WRITE)|DONTNEED_LOCKED|COLLAPSE|GUARD_[A-Z]+)|MFD_(NOEXEC_SEAL|EXEC)'
newer+='|UFFDIO_(WRITEPROTECT(_MODE_[A-Z]+)?|CONTINUE|POISON|MOVE)|UFFDIO_REGISTER_MODE_MINOR|UFFD_USER_MODE_ONLY'
newer+='|UFFD_FEATURE_(WP_[A-Z_]+|MINOR_[A-Z_]+|EXACT_ADDRESS|PAGEFAULT_FLAG_MINOR|POISON|MOVE)|USERFAULTFD_IOC_NEW'
newer+='|(SYS|__NR)_(pidfd_[a-z_]+|clone3|close_range|openat2|faccessat2|process_m[a-z]+|futex_[a-z]+|io_uring_[a-z]+)'
newer+='|CLONE_(PIDFD|CLEAR_SIGHAND|INTO_CGROUP)|P_PIDFD|PROCMAP_QUERY|mallinfo2'

# Those of a file that it uses without a word of its own about them.
found_in() # FILE
{
    local name said
    said=$(grep -E '^ *# *(ifndef|ifdef|if) ' "$1")
    for name in $(without_comments "$1" | grep -owE "$newer" | sort -u); do
        case $name in
        mallinfo2) grep -q __GLIBC_PREREQ <<<"$said" ;;
        UFFDIO_*_MODE_*) grep -qw "${name%_MODE_*}" <<<"$said" ;; # defined with what it is a mode of
        *) grep -qw "$name" <<<"$said" ;;
        esac || echo "$1: $name"
    done
}

expect_lines_are_found <<'END'
return ::madvise(start, length, MADV_POPULATE_READ) == 0;
protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
::syscall(SYS_pidfd_open, pid, 0);
const struct mallinfo2 heap = mallinfo2();
END
printf '#ifndef MADV_POPULATE_READ\n#define MADV_POPULATE_READ 22\n#endif\nint advice = MADV_POPULATE_READ;\n' >"$scratch"
expect "what a file defines it may use" "" "$(found_in "$scratch")"
expect "nothing newer than glibc 2.28 and Linux 4.18 without a word" "" "$(found_in_sources "$newer")"
exit $((failures != 0))
