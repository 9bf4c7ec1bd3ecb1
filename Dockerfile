# The binary alone, static. Build with: docker build --build-arg VERSION=$(git describe --tags --always) -t statemesh .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /statemesh ./cmd/statemesh \
    && mkdir -p /state && chown 65532:65532 /state

# No shell, no package manager; certificate authorities and a user that is not root.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /statemesh /statemesh
COPY --from=build --chown=65532:65532 /state /state
# The mounted mesh.yaml says state.dir: /state, listen: 0.0.0.0:7070, and application.server and TLS, which an address
# beyond loopback needs. Queries are at 7070; metrics and profiles are where admin.listen says: do not publish them.
VOLUME /state
EXPOSE 7070
ENTRYPOINT ["/statemesh"]
CMD ["serve", "-c", "/etc/statemesh/mesh.yaml"]
