package idemhttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// replayable returns the request, or a copy of it whose body is buffered so that it can be
// sent again. A body that is too large is restored from the part that was read and the
// rest, and can be sent once.
func (o *ClientOptions) replayable(req *http.Request) (*http.Request, error) {
	switch {
	case hasReplayableBody(req), o.MaxBody < 0, req.ContentLength > o.MaxBody:
		return req, nil
	case len(req.Trailer) > 0, len(req.TransferEncoding) > 0:
		// Trailers are filled in while the body is read, for one reader.
		return req, nil
	}
	start, err := io.ReadAll(io.LimitReader(req.Body, o.MaxBody+1))
	if err != nil {
		closeBody(req)
		return nil, fmt.Errorf("idemhttp: reading the request's body; nothing was sent: %w", err)
	}
	out := req.WithContext(req.Context()) // a shallow copy
	if int64(len(start)) > o.MaxBody {
		out.Body = &joined{io.MultiReader(bytes.NewReader(start), req.Body), req.Body}
		return out, nil
	}
	closeBody(req)
	if out.ContentLength <= 0 {
		out.ContentLength = int64(len(start)) // it was unknown
	}
	out.GetBody = func() (io.ReadCloser, error) {
		if len(start) == 0 {
			return http.NoBody, nil
		}
		return io.NopCloser(bytes.NewReader(start)), nil
	}
	out.Body, err = out.GetBody()
	return out, err
}

func hasReplayableBody(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// joined reads from one thing and closes another.
type joined struct {
	io.Reader
	io.Closer
}
