// docker buildx bake -f deploy/docker-bake.hcl          builds for both platforms, and keeps the image in the cache
// TAGS=registry/streamd:1.0 docker buildx bake -f deploy/docker-bake.hcl --push

variable "TAGS" {
  default = "streamd"
}

variable "BASE" {
  default = "python:3.13-slim"
}

variable "VERSION" {
  default = "0"
}

variable "REVISION" {
  default = "unknown"
}

target "default" {
  context   = "."
  platforms = ["linux/amd64", "linux/arm64"]
  tags      = split(",", TAGS)
  args = {
    BASE     = BASE
    VERSION  = VERSION
    REVISION = REVISION
  }
}
