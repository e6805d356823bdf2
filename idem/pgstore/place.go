package pgstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// A place in a list is written as milliseconds, an id and a name, with spaces between.
func placeName(at int64, id, name string) string {
	return strconv.FormatInt(at, 10) + " " + id + " " + name
}

func entryPlace(page string) (at int64, id, name string, err error) {
	parts := strings.SplitN(page, " ", 3)
	if len(parts) == 3 {
		if at, err = strconv.ParseInt(parts[0], 10, 64); err == nil {
			return at, parts[1], parts[2], nil
		}
	}
	return 0, "", "", noPage(page)
}

func noPage(page string) error {
	return &protocol.ConfigError{What: "page",
		Problem: fmt.Sprintf("pgstore: %q is none: pass what the page before returned as Next", page)}
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
