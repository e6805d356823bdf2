module github.com/idem-go/idempotency/idem/internal/canonical/reference

go 1.26.0

require (
	github.com/gowebpki/jcs v1.0.2
	github.com/idem-go/idempotency v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
