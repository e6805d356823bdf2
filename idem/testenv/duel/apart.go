package duel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

// Apart puts the server of a process, and those that it starts, on one half of the cores and this process
// on the other half: as on two machines, neither side waits for the other one's core. It needs taskset, which every
// Linux has.
func Apart(server int) error {
	half := runtime.NumCPU() / 2
	if half == 0 {
		return errors.New("a comparison needs two cores")
	}
	first := map[int]int{os.Getpid(): 0, server: half}
	for _, pid := range child.Descendants(server) {
		first[pid] = half
	}
	for pid, first := range first {
		cores := fmt.Sprintf("%d-%d", first, first+half-1)
		out, err := exec.Command("taskset", "-acp", cores, strconv.Itoa(pid)).CombinedOutput()
		if ended := errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); err != nil && !ended {
			return fmt.Errorf("taskset: %w: %s", err, out)
		}
	}
	runtime.GOMAXPROCS(half)
	return nil
}
