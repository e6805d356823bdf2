package protocol

import (
	"net/url"
	"strings"
)

// ParseRecordID takes a record's id apart: the tenant, empty for none, the operation and the
// digest of the key's value. What is no record's id has no operation.
func ParseRecordID(id string) (tenant, operation, digest string) {
	parts := strings.Split(id, "#")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return "", "", ""
	}
	tenant, terr := url.PathUnescape(parts[0])
	operation, oerr := url.PathUnescape(parts[1])
	if terr != nil || oerr != nil {
		return "", "", ""
	}
	return tenant, operation, parts[2]
}
