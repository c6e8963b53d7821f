#!/usr/bin/env bash
# Builds the guests whose kernels are peers of the card: tests/interop/build.sh FOLDER [KERNEL...]
#
# For each kernel (6.1 and 6.12 unless named) FOLDER gets vmlinuz-KERNEL and initrd-KERNEL: Debian's signed
# kernel, and a file system in memory with busybox, the modules of Soft-RoCE, rdma-core's libraries, its
# programs rping, ucmatose and udaddy, and agent.c. Works on Debian 12, as root, as it installs packages that are missing. What is there already, and
# newer than its sources, stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [KERNEL...]" >&2; exit 2; }
out=$1
shift
[ $# -gt 0 ] || set -- 6.1 6.12
mkdir -p "$out"
out=$(cd "$out" && pwd)

packages=()
for package in qemu-system-x86 busybox-static cpio kmod xz-utils gcc libc6-dev libibverbs-dev ibverbs-providers rdmacm-utils iproute2; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || packages+=("$package")
done
if [ "${#packages[@]}" -gt 0 ]; then
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
fi

# The package that Debian's package for the series depends on: the newest build of it.
image_of() {
    local series
    case $1 in
        6.1) series=linux-image-amd64 ;;
        *) series=linux-image-$1-amd64 ;;
    esac
    apt-cache depends "$series" | awk -v want="linux-image-$1" '/Depends:/ && index($2, want) == 1 { print $2; exit }'
}


work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for kernel in "$@"; do
    initrd=$out/initrd-$kernel
    if [ -e "$initrd" ] && [ -e "$out/vmlinuz-$kernel" ] && [ -z "$(find "$here" -newer "$initrd" -type f)" ]; then
        continue
    fi
    image=$(image_of "$kernel")
    [ -n "$image" ] || { apt-get update -q >/dev/null && image=$(image_of "$kernel"); }
    [ -n "$image" ] || { echo "$0: Debian has no kernel $kernel here" >&2; exit 1; }
    echo "kernel $kernel: $image"
    tree=$work/tree-$kernel
    mkdir -p "$tree"
    (cd "$tree" && apt-get -q -o APT::Sandbox::User=root download "$image" >/dev/null && dpkg -x "$image"_*.deb . && rm ./*.deb)
    version=$(ls "$tree/lib/modules")
    depmod -b "$tree" "$version"

    root=$work/root-$kernel
    mkdir -p "$root"/{bin,proc,sys,dev,modules}
    install "$(command -v busybox)" "$root/bin/busybox"
    install "$here/init" "$root/init"
    gcc -O2 -Wall -Werror -o "$root/bin/agent" "$here/agent.c" -libverbs
    rdma=$(command -v rdma)
    install "$rdma" "$root/bin/rdma"
    cm=(/usr/bin/rping /usr/bin/ucmatose /usr/bin/udaddy)
    install "${cm[@]}" "$root/bin"
    for program in "$root/bin/agent" "$rdma" "${cm[@]}" /usr/lib/*/libibverbs/librxe-rdmav*.so; do
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do
            [ -e "$root$library" ] || install -D "$library" "$root$library"
        done
    done
    # libgcc_s: for threads that end, by name.
    for file in /usr/lib/*/libibverbs/librxe-rdmav*.so /etc/libibverbs.d/rxe.driver /lib/*/libgcc_s.so.1; do
        install -D "$file" "$root$file"
    done
    # crc32: the ICRC's, which the driver asks for by name.
    for module in virtio_pci virtio_net 8021q ib_uverbs rdma_ucm crc32_generic crc32_pclmul rdma_rxe; do
        modprobe -d "$tree" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
    done | awk '!seen[$0]++' >"$work/modules"
    while read -r module; do
        name=$(basename "${module%.xz}")
        case $module in
            *.xz) xz -dc "$module" >"$root/modules/$name" ;;
            *) install -m 644 "$module" "$root/modules/$name" ;;
        esac
        echo "$name"
    done <"$work/modules" >"$root/modules/order"
    cp "$tree"/boot/vmlinuz-* "$out/vmlinuz-$kernel"
    (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1) >"$initrd.new"
    mv "$initrd.new" "$initrd"
done
