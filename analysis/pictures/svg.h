// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pieces of an SVG picture as text, the colours and scales that all pictures share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tofu::sim::tools {

// Chosen to be distinguishable for colour-blind readers: by lightness on the scale, by hue and lightness elsewhere.
namespace ink {
inline constexpr const char* text = "#1b1f24";
inline constexpr const char* faint = "#57606a";
inline constexpr const char* line = "#c9d1d9";
inline constexpr const char* ground = "#f6f8fa";
inline constexpr const char* idle_link = "#dfe4e9";
inline constexpr const char* compute = "#d3dae2";
inline constexpr const char* post = "#0072b2";
inline constexpr const char* wait = "#e69f00";
inline constexpr const char* put = "#0072b2";
inline constexpr const char* piggyback = "#7cc0ea";
inline constexpr const char* get = "#007a5a";
inline constexpr const char* atomic = "#c0619a";
} // namespace ink

/// From pale (0) to dark (1): lightness falls all the way.
[[nodiscard]] std::string heat(double share);

/// Ends of a scale for people: 1, 2, 2.5, 5 times a power of ten, or of two for bytes; some `wanted` of them from 0 to
/// `most`.
[[nodiscard]] double nice_step(double most, unsigned wanted);
[[nodiscard]] double nice_step_of_bytes(double most, unsigned wanted);

enum class Anchor : uint8_t { start, middle, end };

struct TextStyle {
    double size = 13;
    const char* colour = ink::text;
    Anchor anchor = Anchor::start;
    bool bold = false;
    bool fixed = false; ///< all letters of one width
    double turned = 0;  ///< degrees
};

class Svg {
  public:
    /// `name` is for screen readers.
    Svg(double width, double height, std::string_view name);

    /// A tooltip belongs to what is drawn next; empty: none.
    Svg& tip(std::string text);
    void rect(double x, double y, double width, double height, std::string_view fill, double round = 0,
              std::string_view stroke = {});
    void line(double x1, double y1, double x2, double y2, std::string_view stroke, double width = 1);
    void path(std::string_view d, std::string_view fill, std::string_view stroke = {}, double width = 1);
    void circle(double x, double y, double r, std::string_view fill, std::string_view stroke = {});
    void text(double x, double y, std::string_view text, const TextStyle& style = {});
    [[nodiscard]] std::string finish();

    [[nodiscard]] double width() const noexcept { return width_; }
    [[nodiscard]] double height() const noexcept { return height_; }

  private:
    void close(std::string_view element);

    std::string out_;
    std::string tip_;
    double width_;
    double height_;
};

/// "12.5", without needless digits.
[[nodiscard]] std::string number(double value);
[[nodiscard]] std::string escaped(std::string_view text);
/// About how wide a text will be.
[[nodiscard]] double text_width(std::string_view text, const TextStyle& style = {});

} // namespace tofu::sim::tools
