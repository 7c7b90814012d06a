#!/bin/sh
# Runs benchmarks/gpu.py on a machine that has nothing but Python with PyTorch for CUDA, from the folder that `make gpu` has packed
# there: sh benchmarks/gpu_run.sh. It installs nothing outside its folder, and is over within 8 minutes.
set -e
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
"$python" -m venv --without-pip --clear "$here/venv"
site=$("$here/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for folder in more wheels; do  # what bftrainer needs replaces what others do
    test ! -d "$here/$folder" ||
        "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" "$here/$folder"/*.whl
done
# PyTorch is the machine's own
"$python" -c 'import sys; print(*(each for each in sys.path if each.endswith("-packages")), sep="\n")' > "$site/machine.pth"
export PYTHONPATH="$here/project" PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
date -u +%Y-%m-%d
cd "$here/project"
timeout 460 "$here/venv/bin/python" benchmarks/gpu.py --repeat 1 --seconds 10 "$@" 2>&1 | tee "$here/results.txt"
