package idemhttp

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// onlyReader hides what a body is, so that net/http does not know its length.
type onlyReader struct{ io.Reader }

func TestBodies(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		body    io.Reader
		o       *ClientOptions
		change  func(*http.Request)
		want    string
		lengths []int64
	}{
		"none":             {nil, nil, nil, "", []int64{0, 0}},
		"in memory":        {strings.NewReader("order"), nil, nil, "order", []int64{5, 5}},
		"stream":           {onlyReader{strings.NewReader("order")}, nil, nil, "order", []int64{5, 5}},
		"empty stream":     {onlyReader{strings.NewReader("")}, nil, nil, "", []int64{0, 0}},
		"stream, as large": {onlyReader{strings.NewReader(long)}, &ClientOptions{MaxBody: 100}, nil, long, []int64{100, 100}},
		"too large":        {onlyReader{strings.NewReader(long)}, &ClientOptions{MaxBody: 99}, nil, long, []int64{-1}},
		"too large, known": {onlyReader{strings.NewReader(long)}, &ClientOptions{MaxBody: 99}, func(r *http.Request) { r.ContentLength = 100 }, long, []int64{100}},
		"large in memory":  {strings.NewReader(long), &ClientOptions{MaxBody: 1}, nil, long, []int64{100, 100}},
		"never buffered":   {onlyReader{strings.NewReader("order")}, &ClientOptions{MaxBody: -1}, nil, "order", []int64{-1}},
		"chunked":          {onlyReader{strings.NewReader("order")}, nil, func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }, "order", []int64{-1}},
		"trailer":          {onlyReader{strings.NewReader("order")}, nil, func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"1"}} }, "order", []int64{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, status(503))
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, c.body)
			require.NoError(t, err)
			if c.change != nil {
				c.change(req)
			}
			var o ClientOptions
			if c.o != nil {
				o = *c.o
			}
			o.MaxAttempts = 2
			code, _ := newTrial(t, nil, &o).do(t, req)
			require.Equal(t, 503, code)
			var lengths []int64
			for _, r := range s.requests() {
				require.Equal(t, c.want, r.body)
				require.NotEmpty(t, r.header.Get(DefaultKeyHeader), "a body that is sent once has a key nevertheless")
				lengths = append(lengths, r.length)
			}
			require.Equal(t, c.lengths, lengths)
		})
	}
}

func TestABodyThatCannotBeReadIsNotSent(t *testing.T) {
	broken := errors.New("disk gone")
	s := serving(t, status(200))
	body := &watched{Reader: io.MultiReader(strings.NewReader("ord"), failing{broken})}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	require.NoError(t, err)
	_, err = newTrial(t, nil, nil).Do(req)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "nothing was sent")
	require.Empty(t, s.requests())
	require.True(t, body.closed)
}

func TestABodyThatCannotBeHadAgainEndsTheSending(t *testing.T) {
	broken := errors.New("file moved")
	s := serving(t, status(503))
	req := request(t, "POST", s.URL, "order")
	req.GetBody = func() (io.ReadCloser, error) { return nil, broken }
	_, err := newTrial(t, nil, nil).Do(req)
	require.ErrorIs(t, err, broken)
	var failed *SendError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 503, failed.Status)
	require.Len(t, s.requests(), 1)
}

func TestBodiesAreClosed(t *testing.T) {
	for name, o := range map[string]*ClientOptions{"buffered": nil, "too large": {MaxBody: 2}, "streamed": {MaxBody: -1}} {
		s := serving(t, status(200))
		body := &watched{Reader: strings.NewReader("order")}
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
		require.NoError(t, err)
		newTrial(t, nil, o).do(t, req)
		require.True(t, body.closed, name)
		require.Equal(t, "order", s.requests()[0].body, name)
	}
}
