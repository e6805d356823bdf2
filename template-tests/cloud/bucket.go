package cloud

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// assets is the name of the account's bucket for assets.
func (s *Server) assets() string { return "cdk-hnb659fds-assets-" + s.Account + "-" + s.Region }

// bucket serves S3, with the bucket's name in the path.
func (s *Server) bucket(w http.ResponseWriter, r *http.Request) {
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	if name != s.assets() {
		s.refuse(w, r.Method+" "+r.URL.Path)
		return
	}
	switch {
	case key == "" && r.Method == http.MethodGet && q.Has("location"):
		s.called("s3:GetBucketLocation")
		write(w, http.StatusOK, tag("LocationConstraint", s.Region))
	case key == "" && r.Method == http.MethodGet && q.Has("encryption"):
		s.called("s3:GetBucketEncryption")
		write(w, http.StatusOK, group("ServerSideEncryptionConfiguration", group("Rule",
			group("ApplyServerSideEncryptionByDefault", tag("SSEAlgorithm", "AES256")))))
	case key == "" && r.Method == http.MethodGet && q.Get("list-type") == "2":
		s.called("s3:ListObjectsV2")
		s.list(w, q.Get("prefix"))
	case key != "" && r.Method == http.MethodPut && len(q) <= 1: // x-id names the operation
		s.called("s3:PutObject")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.objects[key] = body
		w.Header().Set("ETag", `"etag"`)
	default:
		s.refuse(w, r.Method+" "+r.URL.String())
	}
}

func (s *Server) list(w http.ResponseWriter, prefix string) {
	found := []element{tag("Name", s.assets()), tag("IsTruncated", "false")}
	for key, body := range s.objects {
		if strings.HasPrefix(key, prefix) {
			found = append(found, group("Contents", tag("Key", key), tag("Size", fmt.Sprint(len(body)))))
		}
	}
	write(w, http.StatusOK, group("ListBucketResult", found...))
}

// Objects are the keys of the bucket for assets and their bytes.
func (s *Server) Objects() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// object at an address as CloudFormation takes it.
func (s *Server) object(address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	key := strings.TrimPrefix(u.Path, "/")
	if !strings.HasPrefix(u.Host, s.assets()+".") {
		bucket, rest, _ := strings.Cut(key, "/")
		if bucket != s.assets() {
			return nil, fmt.Errorf("no bucket at %s", address)
		}
		key = rest
	}
	body, ok := s.objects[key]
	if !ok {
		return nil, fmt.Errorf("no object at %s", address)
	}
	return body, nil
}
