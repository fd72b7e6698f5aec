// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Is a text JSON, is it XML: no more than the grammar, and what can be asked of it by searching.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tofu::test {

/// RFC 8259, without a look at what \u names.
class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}
    [[nodiscard]] bool whole() { return value() && (space(), at_ == text_.size()); }

  private:
    void space()
    {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
            ++at_;
    }
    bool take(char c)
    {
        space();
        return at_ < text_.size() && text_[at_] == c && ++at_;
    }
    bool word(std::string_view w) { return text_.substr(at_, w.size()) == w && (at_ += w.size()); }
    bool digits()
    {
        std::size_t start = at_;
        while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])))
            ++at_;
        return at_ > start;
    }
    bool number()
    {
        word("-");
        std::size_t start = at_;
        if (!digits() || (text_[start] == '0' && at_ > start + 1))
            return false;
        if (word(".") && !digits())
            return false;
        if (word("e") || word("E")) {
            word("+") || word("-");
            return digits();
        }
        return true;
    }
    bool string()
    {
        if (!take('"'))
            return false;
        for (; at_ < text_.size(); ++at_) {
            unsigned char c = static_cast<unsigned char>(text_[at_]);
            if (c == '"')
                return ++at_;
            if (c < 0x20)
                return false;
            if (c == '\\' &&
                (++at_ >= text_.size() || std::string_view("\"\\/bfnrtu").find(text_[at_]) == std::string_view::npos))
                return false;
        }
        return false;
    }
    template <class F>
    bool list(char close, F&& one)
    {
        if (take(close))
            return true;
        do {
            if (!one())
                return false;
        } while (take(','));
        return take(close);
    }
    bool value()
    {
        space();
        if (take('{'))
            return list('}', [this] { return string() && take(':') && value(); });
        if (take('['))
            return list(']', [this] { return value(); });
        if (at_ < text_.size() && text_[at_] == '"')
            return string();
        return word("true") || word("false") || word("null") || number();
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

/// Elements that are closed in order, attributes between quotes, no stray '<' or '&'.
inline bool is_xml(std::string_view text)
{
    std::vector<std::string> open;
    bool root = false;
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] != '<') {
            if (text[at] == '&' || (open.empty() && !std::isspace(static_cast<unsigned char>(text[at]))))
                return false;
            ++at;
            continue;
        }
        char quote = 0;
        std::size_t end = at + 1;
        for (; end < text.size() && (quote != 0 || text[end] != '>'); ++end) {
            char c = text[end];
            if (quote == 0 && (c == '\'' || c == '"'))
                quote = c;
            else if (c == quote)
                quote = 0;
            else if (c == '<')
                return false;
        }
        if (end == text.size())
            return false;
        std::string_view tag = text.substr(at + 1, end - at - 1);
        at = end + 1;
        if (tag.starts_with("/")) {
            if (open.empty() || open.back() != tag.substr(1))
                return false;
            open.pop_back();
        } else {
            if (open.empty() && root)
                return false;
            root = true;
            if (!tag.ends_with("/"))
                open.emplace_back(tag.substr(0, tag.find_first_of(" \n")));
        }
    }
    return root && open.empty();
}

} // namespace tofu::test
