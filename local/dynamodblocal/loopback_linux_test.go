package dynamodblocal

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Addresses as /proc/net/tcp and tcp6 write them.
const (
	loopback4       = "0100007F"
	loopback4Mapped = "0000000000000000FFFF00000100007F"
	loopback6       = "00000000000000000000000001000000"
)

// listening returns the local addresses, as address:port in hexadecimal, of all
// listening TCP sockets that the process has.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile("/proc/net/" + table)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			// sl local_address rem_address st … inode is the tenth
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && inodes[f[9]] {
				found = append(found, f[1])
			}
		}
	}
	return found
}

func TestListensOnLoopbackOnly(t *testing.T) {
	cache := provisionedCache(t)
	isolate(t)
	srv, err := Start(t.Context(), &Options{CacheDir: cache, DockerHost: NoDocker})
	require.NoError(t, err)
	defer srv.Close()
	u, err := url.Parse(srv.Endpoint())
	require.NoError(t, err)
	var port int
	_, err = fmt.Sscan(u.Port(), &port)
	require.NoError(t, err)

	sockets := listening(t, srv.pid)
	require.Len(t, sockets, 1, "the endpoint and nothing else")
	address, hexPort, _ := strings.Cut(sockets[0], ":")
	require.Equal(t, fmt.Sprintf("%04X", port), hexPort)
	require.Contains(t, []string{loopback4, loopback4Mapped, loopback6}, address)
}
