package child

import (
	"os"
	"syscall"
)

// Nobody is the id of the user nobody, and of its group.
const Nobody = 65534

// unprivileged is nil where this process is not root's.
func unprivileged() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: Nobody, Gid: Nobody}
}
