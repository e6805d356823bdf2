//go:build !linux

package runtime

import "os"

// awaitStop does not wait here.
func awaitStop(*os.Process, <-chan struct{}) {}
