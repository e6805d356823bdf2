package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// removing waits for the end of its input. A server that ends at the same moment may still write.
const removing = `cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$0" && break; sleep 1; done`

// Folder makes a temporary folder, for the files of a server. It is removed by remove, or when
// this process has ended, also if it is killed.
func Folder(pattern string) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", removing, dir)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C in the terminal must not end it
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		_ = stdin.Close() // closing again does nothing
		_ = cmd.Wait()    // what it could not remove lies among temporary files
	}, nil
}
