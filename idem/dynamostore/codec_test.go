package dynamostore

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
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

// BenchmarkCompression is why results are compressed as they are: %size is the
// stored form's size in percent of the result's.
func BenchmarkCompression(b *testing.B) {
	var own codec
	deflate := func(level int) func([]byte) []byte {
		w, _ := flate.NewWriter(nil, level)
		return func(p []byte) []byte {
			var o bytes.Buffer
			w.Reset(&o)
			_, _ = w.Write(p)
			_ = w.Close()
			return o.Bytes()
		}
	}
	zip := func(level int) func([]byte) []byte {
		w, _ := gzip.NewWriterLevel(nil, level)
		return func(p []byte) []byte {
			var o bytes.Buffer
			w.Reset(&o)
			_, _ = w.Write(p)
			_ = w.Close()
			return o.Bytes()
		}
	}
	standard, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	for _, c := range []struct {
		name string
		do   func([]byte) []byte
	}{
		{"store", func(p []byte) []byte { small, _ := own.compress(p); return small }},
		{"zstd-default", func(p []byte) []byte { return standard.EncodeAll(p, nil) }},
		{"s2", func(p []byte) []byte { return s2.Encode(nil, p) }},
		{"s2-better", func(p []byte) []byte { return s2.EncodeBetter(nil, p) }},
		{"flate-1", deflate(1)},
		{"flate-6", deflate(6)},
		{"gzip-1", zip(1)},
		{"gzip-6", zip(6)},
	} {
		for _, kb := range []int{2, 10, 100} {
			in := jsonResult(kb << 10)
			b.Run(fmt.Sprintf("%s/%dKB", c.name, kb), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(in)))
				var out []byte
				for b.Loop() {
					out = c.do(in)
				}
				b.ReportMetric(100*float64(len(out))/float64(len(in)), "%size")
			})
		}
	}
}

func BenchmarkDecompression(b *testing.B) {
	var c codec
	for _, kb := range []int{2, 10, 100} {
		in := jsonResult(kb << 10)
		small, ok := c.compress(in)
		require.True(b, ok)
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if _, err := c.decompress(small, len(in)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The choice holds as long as no standard level is smaller by more than a
// twentieth of the result.
func TestCompressionIsWorthItsLibrary(t *testing.T) {
	var c codec
	for _, kb := range []int{2, 10, 100} {
		in := jsonResult(kb << 10)
		small, ok := c.compress(in)
		require.True(t, ok)
		var o bytes.Buffer
		w, err := flate.NewWriter(&o, flate.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(in)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Less(t, len(small), o.Len()+len(in)/20)
		require.Less(t, len(small), len(in)/2)
	}
}

func TestPackAndUnpack(t *testing.T) {
	var c codec
	for _, in := range [][]byte{nil, {}, []byte("{}"), text2(3000), noise(3000), jsonResult(100 << 10), noise(900 << 10)} {
		b := c.pack(in)
		require.Equal(t, b, c.pack(in), "a repeated write is identical")
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
	require.Equal(t, encodingZstd, good.Encoding)
	for name, damage := range map[string]func(*protocol.Body){
		"another codec":    func(b *protocol.Body) { b.Encoding = "br" },
		"not compressed":   func(b *protocol.Body) { b.Data = in },
		"cut short":        func(b *protocol.Body) { b.Data = b.Data[:len(b.Data)-9] },
		"empty":            func(b *protocol.Body) { b.Data = nil },
		"a smaller size":   func(b *protocol.Body) { b.Size-- },
		"a larger size":    func(b *protocol.Body) { b.Size++ },
		"two frames":       func(b *protocol.Body) { b.Data = append(bytes.Clone(b.Data), b.Data...) },
		"plain, too short": func(b *protocol.Body) { b.Encoding = ""; b.Data = in[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			b := good
			damage(&b)
			_, err := c.unpack(b, b.Data)
			require.Error(t, err)
		})
	}
}

// A small stored form that expands to more than it should is stopped early.
func TestDecompressionIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	w, err := zstd.NewWriter(&bomb)
	require.NoError(t, err)
	_, err = io.CopyN(w, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Less(t, bomb.Len(), 100<<10)
	var c codec
	_, err = c.decompress(bomb.Bytes(), 1000)
	require.Error(t, err)
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
