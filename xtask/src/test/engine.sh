# Keeps an engine for containers: it lives in namespaces of its own, and goes, with all it holds, when nobody wants it any more.
#
#     unshare --net --pid --fork --kill-child --mount-proc -- sh engine.sh DIRECTORY [OPTIONS OF DOCKERD]
#
# Standard input is the lifeline. Each line of it is a word to obey, and is answered by the same word: `start`, `freeze`,
# `thaw`, `kill`. Its end, however it comes about, ends everything and removes the directory.
if [ $$ -ne 1 ] || [ ! -d "$1" ]; then
    echo "$0: runs only as the first process of a namespace, on a directory" >&2
    exit 2
fi
directory=$1
shift
group=groundcrew-engine-${directory##*/}
# Who looks for what an earlier one left knows by it that this one lives.
exec 9>"$directory/lock"
flock 9
ip link set lo up 2>/dev/null
while read -r word; do
    case $word in
    start)
        # What an unclean stop leaves: the numbers of processes that are gone, or by now somebody else's.
        rm -f "$directory/pid" "$directory/exec/containerd/containerd.pid"
        dockerd --data-root "$directory/data" --exec-root "$directory/exec" --pidfile "$directory/pid" \
            --host "unix://$directory/docker.sock" --cgroup-parent "/$group" "$@" \
            >>"$directory/log" 2>&1 </dev/null 9>&- &
        engine=$!
        ;;
    freeze) kill -STOP "$engine" ;;
    thaw) kill -CONT "$engine" ;;
    kill)
        kill -KILL "$engine"
        wait "$engine"
        ;;
    esac
    echo "$word"
done
kill -KILL -1
wait
grep -F " $directory/" /proc/self/mounts | cut -d' ' -f2 | sort -r | xargs -r umount -l
find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null
rm -rf "$directory"
