package dynamostore

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// jsonResult is at least size bytes of what services return: names repeated,
// values that are partly random.
func jsonResult(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	people := []string{"Ada Lovelace", "Grace Hopper", "Alan Turing", "Edsger Dijkstra", "Barbara Liskov"}
	states := []string{"authorized", "captured", "refunded", "declined"}
	type payment struct {
		ID       string  `json:"id"`
		Amount   int     `json:"amount"`
		Currency string  `json:"currency"`
		Customer string  `json:"customer_name"`
		State    string  `json:"state"`
		Created  string  `json:"created_at"`
		Risk     float64 `json:"risk_score"`
	}
	b := []byte{'['}
	for len(b) < size-1 {
		p, _ := json.Marshal(payment{
			ID: fmt.Sprintf("pay_%016x", r.Uint64()), Amount: r.IntN(1e6), Currency: "EUR",
			Customer: people[r.IntN(len(people))], State: states[r.IntN(len(states))],
			Created: fmt.Sprintf("2026-%02d-%02dT%02d:%02d:00Z", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60)),
			Risk:    r.Float64(),
		})
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, p...)
	}
	return append(b, ']')
}

// No level makes the stored form smaller by more than a twentieth of the result.
func TestTheLevelOfCompression(t *testing.T) {
	var c codec
	for _, kb := range []int{2, 10, 100} {
		in := jsonResult(kb << 10)
		small := c.compress(in)
		var o bytes.Buffer
		w, err := zlib.NewWriterLevel(&o, zlib.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(in)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Less(t, len(small), o.Len()+len(in)/20)
		require.Less(t, len(small), len(in)/2)
	}
}

// unzipped is what zlib makes of bytes, for tests that do not know how much that is.
func unzipped(b []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestPackAndUnpack(t *testing.T) {
	var c codec
	for _, in := range [][]byte{nil, {}, []byte("{}"), text2(3000), noise(3000), jsonResult(100 << 10), noise(900 << 10)} {
		b := c.pack(in)
		require.Equal(t, b, c.pack(in), "a repeated write is identical")
		require.Equal(t, b, new(codec).pack(in), "whatever its writer wrote before")
		require.LessOrEqual(t, b.Stored, len(in))
		out, err := c.unpack(b, b.Data)
		require.NoError(t, err)
		require.True(t, bytes.Equal(in, out))
	}
}

func TestUnpackRefusesWhatIsNotTheResult(t *testing.T) {
	var c codec
	in := jsonResult(10 << 10)
	good := c.pack(in)
	require.Equal(t, encodingZlib, good.Encoding)
	for name, damage := range map[string]func(*protocol.Body){
		"another codec":        func(b *protocol.Body) { b.Encoding = "br" },
		"Zstandard":            func(b *protocol.Body) { b.Data = zstandard },
		"said to be Zstandard": func(b *protocol.Body) { b.Encoding = "zstd" },
		"a byte changed":       func(b *protocol.Body) { b.Data = bytes.Clone(b.Data); b.Data[len(b.Data)/2] ^= 1 },
		"the sum changed":      func(b *protocol.Body) { b.Data = bytes.Clone(b.Data); b.Data[len(b.Data)-1] ^= 1 },
		"no sum":               func(b *protocol.Body) { b.Data = b.Data[:len(b.Data)-4] },
		"a byte behind it":     func(b *protocol.Body) { b.Data = append(bytes.Clone(b.Data), 0) },
		"not compressed":       func(b *protocol.Body) { b.Data = in },
		"cut short":            func(b *protocol.Body) { b.Data = b.Data[:len(b.Data)-9] },
		"empty":                func(b *protocol.Body) { b.Data = nil },
		"a smaller size":       func(b *protocol.Body) { b.Size-- },
		"a larger size":        func(b *protocol.Body) { b.Size++ },
		"two frames":           func(b *protocol.Body) { b.Data = append(bytes.Clone(b.Data), b.Data...) },
		"plain, too short":     func(b *protocol.Body) { b.Encoding = ""; b.Data = in[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // a reader that failed is used again
				b := good
				damage(&b)
				_, err := c.unpack(b, b.Data)
				require.Error(t, err)
				out, err := c.unpack(good, good.Data)
				require.NoError(t, err)
				require.Equal(t, in, out)
			}
		})
	}
}

// zstandard is a frame of Zstandard: 3,000 bytes of {"a":1}.
var zstandard, _ = base64.StdEncoding.DecodeString("KLUv/WS4Cn0AADh7ImEiOjF9AVQHAy+uUz1+NwM=")

// A small stored form that expands to more than it should is stopped early.
func TestDecompressionIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	w := zlib.NewWriter(&bomb)
	_, err := io.CopyN(w, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Less(t, bomb.Len(), 100<<10)
	var c codec
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = c.decompress(bomb.Bytes(), 1000)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "more than 1000 bytes")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestCodecIsSafeForConcurrentUse(t *testing.T) {
	var c codec
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			in := jsonResult((n + 3) << 10)
			for range 20 {
				b := c.pack(in)
				out, err := c.unpack(b, b.Data)
				if err != nil || !bytes.Equal(in, out) {
					t.Errorf("%d bytes were decoded as %d: %v", len(in), len(out), err)
				}
			}
		})
	}
	wg.Wait()
}
