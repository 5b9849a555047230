#pragma once
// Draws a detector's boxes into a photo.

#include <span>

#include "lenslet/detector.h"
#include "lenslet/picture.h"

namespace lenslet::tool {

/// Lines of 2 pixels and more, a colour for each class, along the inside of each box; above it, or at its top where
/// there is no room, its label (else its class) and score in percent. The best box, the first one, is drawn last. A
/// gray photo becomes RGB. Boxes are inside the photo.
void draw_boxes(Picture& photo, std::span<const Detection> found);

}  // namespace lenslet::tool
