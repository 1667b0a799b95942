"""What a collation's number means: the charset of the bytes, its widest character, the collation's name.

A table map and a statement carry nothing but the number. MySQL and MariaDB share their numbers but for what each
added later (MySQL's 0900 collations, MariaDB's NOPAD and UCA 14 ones) and for five Croatian names. A number that is
in neither list is refused when a value's charset is needed: guessing would alter text.

Source: information_schema.COLLATIONS of MySQL 9.7 and MariaDB 11.4; MariaDB's strings/ctype-uca1400.h.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from bronze.binlog.gtid import Flavour

BINARY = 63

# charset, bytes of its widest character, then first number:collation,collation,… without the charset's name
_LIST = """
big5 2 1:chinese_ci 84:bin 1025:chinese_nopad_ci 1108:nopad_bin
latin2 1 2:czech_cs 9:general_ci 21:hungarian_ci 27:croatian_ci 77:bin 1033:general_nopad_ci
  1101:nopad_bin
dec8 1 3:swedish_ci 69:bin 1027:swedish_nopad_ci 1093:nopad_bin
cp850 1 4:general_ci 80:bin 1028:general_nopad_ci 1104:nopad_bin
latin1 1 5:german1_ci 8:swedish_ci 15:danish_ci 31:german2_ci 47:bin,general_ci,general_cs 94:spanish_ci
  1032:swedish_nopad_ci 1071:nopad_bin
hp8 1 6:english_ci 72:bin 1030:english_nopad_ci 1096:nopad_bin
koi8r 1 7:general_ci 74:bin 1031:general_nopad_ci 1098:nopad_bin
swe7 1 10:swedish_ci 82:bin 1034:swedish_nopad_ci 1106:nopad_bin
ascii 1 11:general_ci 65:bin 1035:general_nopad_ci 1089:nopad_bin
ujis 3 12:japanese_ci 91:bin 1036:japanese_nopad_ci 1115:nopad_bin
sjis 2 13:japanese_ci 88:bin 1037:japanese_nopad_ci 1112:nopad_bin
cp1251 1 14:bulgarian_ci 23:ukrainian_ci 50:bin,general_ci,general_cs 1074:nopad_bin,general_nopad_ci
hebrew 1 16:general_ci 71:bin 1040:general_nopad_ci 1095:nopad_bin
tis620 1 18:thai_ci 89:bin 1042:thai_nopad_ci 1113:nopad_bin
euckr 2 19:korean_ci 85:bin 1043:korean_nopad_ci 1109:nopad_bin
latin7 1 20:estonian_cs 41:general_ci,general_cs 79:bin 1065:general_nopad_ci 1103:nopad_bin
koi8u 1 22:general_ci 75:bin 1046:general_nopad_ci 1099:nopad_bin
gb2312 2 24:chinese_ci 86:bin 1048:chinese_nopad_ci 1110:nopad_bin
greek 1 25:general_ci 70:bin 1049:general_nopad_ci 1094:nopad_bin
cp1250 1 26:general_ci 34:czech_cs 44:croatian_ci 66:bin 99:polish_ci 1050:general_nopad_ci 1090:nopad_bin
gbk 2 28:chinese_ci 87:bin 1052:chinese_nopad_ci 1111:nopad_bin
cp1257 1 29:lithuanian_ci 58:bin,general_ci 1082:nopad_bin,general_nopad_ci
latin5 1 30:turkish_ci 78:bin 1054:turkish_nopad_ci 1102:nopad_bin
armscii8 1 32:general_ci 64:bin 1056:general_nopad_ci 1088:nopad_bin
utf8mb3 3 33:general_ci 76:tolower_ci 83:bin 192:unicode_ci,icelandic_ci,latvian_ci
  195:romanian_ci,slovenian_ci,polish_ci 198:estonian_ci,spanish_ci,swedish_ci
  201:turkish_ci,czech_ci,danish_ci 204:lithuanian_ci,slovak_ci,spanish2_ci
  207:roman_ci,persian_ci,esperanto_ci 210:hungarian_ci,sinhala_ci,german2_ci
  213:croatian_ci,unicode_520_ci,vietnamese_ci 223:general_mysql500_ci
  576:croatian_ci,myanmar_ci,thai_520_w2 1057:general_nopad_ci 1107:nopad_bin 1216:unicode_nopad_ci
  1238:unicode_520_nopad_ci
ucs2 2 35:general_ci 90:bin 128:unicode_ci,icelandic_ci,latvian_ci 131:romanian_ci,slovenian_ci,polish_ci
  134:estonian_ci,spanish_ci,swedish_ci 137:turkish_ci,czech_ci,danish_ci
  140:lithuanian_ci,slovak_ci,spanish2_ci 143:roman_ci,persian_ci,esperanto_ci
  146:hungarian_ci,sinhala_ci,german2_ci 149:croatian_ci,unicode_520_ci,vietnamese_ci
  159:general_mysql500_ci 640:croatian_ci,myanmar_ci,thai_520_w2 1059:general_nopad_ci 1114:nopad_bin
  1152:unicode_nopad_ci 1174:unicode_520_nopad_ci
cp866 1 36:general_ci 68:bin 1060:general_nopad_ci 1092:nopad_bin
keybcs2 1 37:general_ci 73:bin 1061:general_nopad_ci 1097:nopad_bin
macce 1 38:general_ci 43:bin 1062:general_nopad_ci 1067:nopad_bin
macroman 1 39:general_ci 53:bin 1063:general_nopad_ci 1077:nopad_bin
cp852 1 40:general_ci 81:bin 1064:general_nopad_ci 1105:nopad_bin
utf8mb4 4 45:general_ci,bin 224:unicode_ci,icelandic_ci,latvian_ci 227:romanian_ci,slovenian_ci,polish_ci
  230:estonian_ci,spanish_ci,swedish_ci 233:turkish_ci,czech_ci,danish_ci
  236:lithuanian_ci,slovak_ci,spanish2_ci 239:roman_ci,persian_ci,esperanto_ci
  242:hungarian_ci,sinhala_ci,german2_ci 245:croatian_ci,unicode_520_ci,vietnamese_ci
  255:0900_ai_ci,de_pb_0900_ai_ci,is_0900_ai_ci 258:lv_0900_ai_ci,ro_0900_ai_ci,sl_0900_ai_ci
  261:pl_0900_ai_ci,et_0900_ai_ci,es_0900_ai_ci 264:sv_0900_ai_ci,tr_0900_ai_ci,cs_0900_ai_ci
  267:da_0900_ai_ci,lt_0900_ai_ci,sk_0900_ai_ci 270:es_trad_0900_ai_ci,la_0900_ai_ci
  273:eo_0900_ai_ci,hu_0900_ai_ci,hr_0900_ai_ci 277:vi_0900_ai_ci,0900_as_cs,de_pb_0900_as_cs
  280:is_0900_as_cs,lv_0900_as_cs,ro_0900_as_cs 283:sl_0900_as_cs,pl_0900_as_cs,et_0900_as_cs
  286:es_0900_as_cs,sv_0900_as_cs,tr_0900_as_cs 289:cs_0900_as_cs,da_0900_as_cs,lt_0900_as_cs
  292:sk_0900_as_cs,es_trad_0900_as_cs,la_0900_as_cs 296:eo_0900_as_cs,hu_0900_as_cs,hr_0900_as_cs
  300:vi_0900_as_cs 303:ja_0900_as_cs,ja_0900_as_cs_ks,0900_as_ci
  306:ru_0900_ai_ci,ru_0900_as_cs,zh_0900_as_cs 309:0900_bin,nb_0900_ai_ci,nb_0900_as_cs
  312:nn_0900_ai_ci,nn_0900_as_cs,sr_latn_0900_ai_ci 315:sr_latn_0900_as_cs,bs_0900_ai_ci,bs_0900_as_cs
  318:bg_0900_ai_ci,bg_0900_as_cs,gl_0900_ai_ci 321:gl_0900_as_cs,mn_cyrl_0900_ai_ci,mn_cyrl_0900_as_cs
  608:croatian_ci,myanmar_ci,thai_520_w2 1069:general_nopad_ci,nopad_bin 1248:unicode_nopad_ci
  1270:unicode_520_nopad_ci
utf16 4 54:general_ci,bin 101:unicode_ci,icelandic_ci,latvian_ci 104:romanian_ci,slovenian_ci,polish_ci
  107:estonian_ci,spanish_ci,swedish_ci 110:turkish_ci,czech_ci,danish_ci
  113:lithuanian_ci,slovak_ci,spanish2_ci 116:roman_ci,persian_ci,esperanto_ci
  119:hungarian_ci,sinhala_ci,german2_ci 122:croatian_ci,unicode_520_ci,vietnamese_ci
  672:croatian_ci,myanmar_ci,thai_520_w2 1078:general_nopad_ci,nopad_bin 1125:unicode_nopad_ci
  1147:unicode_520_nopad_ci
utf16le 4 56:general_ci 62:bin 1080:general_nopad_ci 1086:nopad_bin
cp1256 1 57:general_ci 67:bin 1081:general_nopad_ci 1091:nopad_bin
utf32 4 60:general_ci,bin 160:unicode_ci,icelandic_ci,latvian_ci 163:romanian_ci,slovenian_ci,polish_ci
  166:estonian_ci,spanish_ci,swedish_ci 169:turkish_ci,czech_ci,danish_ci
  172:lithuanian_ci,slovak_ci,spanish2_ci 175:roman_ci,persian_ci,esperanto_ci
  178:hungarian_ci,sinhala_ci,german2_ci 181:croatian_ci,unicode_520_ci,vietnamese_ci
  736:croatian_ci,myanmar_ci,thai_520_w2 1084:general_nopad_ci,nopad_bin 1184:unicode_nopad_ci
  1206:unicode_520_nopad_ci
binary 1 63:-
geostd8 1 92:general_ci,bin 1116:general_nopad_ci,nopad_bin
cp932 2 95:japanese_ci,bin 1119:japanese_nopad_ci,nopad_bin
eucjpms 3 97:japanese_ci,bin 1121:japanese_nopad_ci,nopad_bin
gb18030 4 248:chinese_ci,bin,unicode_520_ci
"""
_UCA1400_FIRST = 2048  # 256 numbers a charset, 8 a language: bit 0 case, bit 1 accent, bit 2 no padding
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_UCA1400_LANGUAGES = (
    *("", "icelandic", "latvian", "romanian", "slovenian", "polish", "estonian", "spanish", "swedish", "turkish"),
    *("czech", "danish", "lithuanian", "slovak", "spanish2", "roman", "persian", "esperanto", "hungarian"),
    *("sinhala", "german2", None, None, "vietnamese", "croatian"),
)
_MARIADB_NAMES = {
    122: "utf16_croatian_mysql561_ci",
    149: "ucs2_croatian_mysql561_ci",
    181: "utf32_croatian_mysql561_ci",
    213: "utf8mb3_croatian_mysql561_ci",
    245: "utf8mb4_croatian_mysql561_ci",
}


class Collation(NamedTuple):
    charset: str  # as information_schema.CHARACTER_SETS spells it
    width: int  # bytes of the charset's widest character (MAXLEN)
    name: str


def collation(number: int, flavour: Flavour = "mysql") -> Collation | None:
    """The collation with this number, or None where neither server has one."""
    if number >= _UCA1400_FIRST:
        return _uca1400(number)
    found = _listed().get(number)
    if found is not None and flavour == "mariadb" and number in _MARIADB_NAMES:
        return found._replace(name=_MARIADB_NAMES[number])
    return found


@cache
def _listed() -> dict[int, Collation]:
    result = {}
    charset, width = "", 0
    for line in _LIST.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            charset, width, words = words[0], int(words[1]), words[2:]
        for word in words:
            first, _, names = word.partition(":")
            for number, name in enumerate(names.split(","), int(first)):
                full = charset if name == "-" else f"{charset}_{name}"
                result[number] = Collation(charset, width, full)
    return result


def _uca1400(number: int) -> Collation | None:
    block, within = divmod(number - _UCA1400_FIRST, 256)
    language, flags = divmod(within, 8)
    if block >= len(_UCA1400_CHARSETS) or language >= len(_UCA1400_LANGUAGES):
        return None
    tongue = _UCA1400_LANGUAGES[language]
    if tongue is None:
        return None
    charset = _UCA1400_CHARSETS[block]
    words = [charset, "uca1400", tongue, "nopad" if flags & 4 else "", "as" if flags & 2 else "ai"]
    name = "_".join([w for w in words if w] + ["cs" if flags & 1 else "ci"])
    return Collation(charset, {"utf8mb3": 3, "ucs2": 2}.get(charset, 4), name)
