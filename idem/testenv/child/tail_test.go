package child

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailKeepsTheLastLines(t *testing.T) {
	out := NewTail()
	require.Equal(t, "  (nothing)", out.String())
	for range tailLines {
		_, err := out.Write([]byte("early\r\n"))
		require.NoError(t, err)
	}
	_, err := out.Write([]byte("la"))
	require.NoError(t, err)
	_, err = out.Write([]byte("te\nListening on 127.0.0.1:1\nListening on 127.0.0.1:2\nno end"))
	require.NoError(t, err)
	require.Regexp(t, `^(  early\n){16}  late\n  Listening on 127.0.0.1:1\n  Listening on 127.0.0.1:2\n  no end$`,
		out.String())
	require.Equal(t, "127.0.0.1:1", <-out.Listening())
	require.Empty(t, out.Listening())
}
