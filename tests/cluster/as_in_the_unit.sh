#!/bin/bash
# Stands in for setpriv where the admin guide starts the daemon: first does what the system unit asks of systemd
# (ProtectSystem=strict, ProtectHome=yes, PrivateTmp=yes, InaccessiblePaths, CapabilityBoundingSet=$CAPABILITIES).
set -eu
if test -z "${SEPARATE:-}"; then
    unshare --mount true || exec /usr/bin/setpriv "$@"  # a container that may not
    SEPARATE=1 exec unshare --mount "$0" "$@"
fi
mount --make-rprivate /
for folder in /var/lib/bftrainer /run/bftrainer; do mount --bind $folder $folder; done
for folder in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
for folder in /home /root /dev/shm /dev/mqueue /run/lock; do
    test ! -d $folder || mount -t tmpfs -o mode=000,ro tmpfs $folder
done
mount -o remount,bind,ro /
exec /usr/bin/setpriv --bounding-set="-all,$CAPABILITIES" "$@"
