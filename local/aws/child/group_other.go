//go:build !unix

package child

import "syscall"

// ownGroup does nothing where there are no process groups; the end of standard
// input is enough to end the child.
func ownGroup() *syscall.SysProcAttr { return nil }
