"""Coefficients of the functions' polynomials, lowest power first, and the constants beside them.

Each minimizes the greatest weighted error on Chebyshev nodes: weighted least squares in 40 digits,
repeated with Lawson's update of the weights (Lawson, "Contributions to the theory of linear least
maximum approximation", 1961). The lowest coefficient is then rounded to the type it is used in and
the rest fitted again, and so on upwards. ``error`` is the greatest relative error of the function
that remains, before roundings; half an ulp of f32 is 2**-25 to 2**-24.
"""

from __future__ import annotations

# e**r = 1 + r + r**2 P(r) for abs(r) < 0.3475; error 2**-28.2.
EXP = (4.9999994e-1, 1.666652e-1, 4.166826e-2, 8.368849e-3, 1.3821723e-3)

# e**r - 1 = r + r**2 P(r) for abs(r) < 0.3475; error 2**-31.
EXPM1 = (5e-1, 1.6666666e-1, 4.1666493e-2, 8.333543e-3, 1.3932368e-3, 1.9764336e-4)

# 2**r = 1 + r P(r) for abs(r) < 0.501; error 2**-28.3.
EXP2 = (6.931472e-1, 2.4022648e-1, 5.5503592e-2, 9.618498e-3, 1.3391189e-3, 1.5330008e-4)

# log(1 + f) = f - f**2 / 2 + f**3 P(f) for sqrt(1/2) <= 1 + f <= sqrt(2); error 2**-30.2.
LOG = (
    3.3333313e-1,
    -2.5000012e-1,
    2.0002073e-1,
    -1.6667858e-1,
    1.4220224e-1,
    -1.24080926e-1,
    1.1886206e-1,
    -1.16614535e-1,
    6.733989e-2,
)

# log(2) in two parts: a product of the first (10 bits) with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.1219444005469058e-4

# erf(x) = 1 - 2**(x P(x)) for 0 <= x <= 4, above which it is 1; error 2**-27.5.
ERFC_LOG2 = (
    -1.627907,
    -9.184475e-1,
    -1.4827819e-1,
    2.763588e-2,
    2.2484422e-4,
    -2.3989473e-3,
    9.099105e-4,
    -1.6891712e-4,
    1.3270284e-5,
)

# erf(k / ERF_STEPS + t) = P(t) for abs(t) < 0.131: of each power, the coefficients for the 16
# values of k; error below 0.9 ulp of f32, and P is 1 at 4.
ERF_STEPS = 256 / 67
ERF = (
    (
        *(0.0, 2.8871155e-1, 5.4085314e-1, 7.331641e-1),
        *(8.612614e-1, 9.3577737e-1, 9.736326e-1, 9.90427e-1),
        *(9.969337e-1, 9.991351e-1, 9.997855e-1, 9.9995327e-1),
        *(9.9999106e-1, 9.999985e-1, 9.9999976e-1, 1e0),
    ),
    (
        *(1.1283792e0, 1.0536767e0, 8.579543e-1, 6.091516e-1),
        *(3.7713012e-1, 2.0359239e-1, 9.5837705e-2, 3.9338317e-2),
        *(1.4079903e-2, 4.3942835e-3, 1.1958618e-3, 2.8377783e-4),
        *(5.8719237e-5, 1.05946565e-5, 1.6668553e-6, 2.4089067e-7),
    ),
    (
        *(-1.4007376e-5, -2.757633e-1, -4.4907779e-1, -4.7826716e-1),
        *(-3.9480984e-1, -2.6643136e-1, -1.5048976e-1, -7.207358e-2),
        *(-2.9489769e-2, -1.0350448e-2, -3.1353023e-3, -8.1852655e-4),
        *(-1.8070092e-4, -3.919152e-5, 2.5034444e-6, -1.7920207e-5),
    ),
    (
        *(-3.7560266e-1, -3.0314246e-1, -1.2930423e-1, 4.7297325e-2),
        *(1.4982876e-1, 1.6455953e-1, 1.256044e-1, 7.4909665e-2),
        *(3.645585e-2, 1.47889005e-2, 5.06211e-3, 1.4733095e-3),
        *(3.6650925e-4, 7.821681e-5, 1.4359216e-5, -5.697413e-5),
    ),
    (
        *(-6.2512546e-3, 1.3068095e-1, 1.8229811e-1, 1.3978206e-1),
        *(5.3424243e-2, -1.7812718e-2, -4.847832e-2, -4.423419e-2),
        *(-2.778329e-2, -1.4028907e-2, -5.301109e-3, -1.7776579e-3),
        *(-7.365137e-4, 5.888317e-5, -5.235691e-4, 2.1413951e-3),
    ),
    (
        *(1.3580419e-1, 7.83227e-2, 1.9227782e-3, -5.8009524e-2),
        *(-6.676905e-2, -3.9480656e-2, -7.3911706e-3, 1.0076894e-2),
        *(1.2741291e-2, 8.723859e-3, 4.3416303e-3, 1.7003404e-3),
        *(5.423704e-4, 1.4365553e-4, 3.193394e-5, 1.3065761e-2),
    ),
)

# sin(r) = r + r**3 P(r**2) for abs(r) < 0.786; error 2**-27.8.
SIN = (-1.6666655e-1, 8.332187e-3, -1.951798e-4)

# cos(r) = 1 - r**2 / 2 + r**4 P(r**2) for abs(r) < 0.786; error 2**-33.
COS = (4.1666646e-2, -1.3887311e-3, 2.4432558e-5)

# pi/2 in two parts: a product of the first (33 bits) with an integer below 2**20 is exact in f64.
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11

# log2(m) = s P(s**2), s = (m - 1) / (m + 1), for sqrt(1/2) <= m <= sqrt(2), in f64; error 2**-45.
LOG2_F64 = (
    2.885390081777851,
    9.617966941128694e-1,
    5.770779423529859e-1,
    4.12209261720574e-1,
    3.1990505612457015e-1,
    2.8291259200816066e-1,
)

# 2**r = P(r) for abs(r) <= 0.5, in f64; error 2**-34.5.
EXP2_F64 = (
    9.999999999619859e-1,
    6.931471807319065e-1,
    2.40226511969697e-1,
    5.550410344287836e-2,
    9.618027322036116e-3,
    1.3333929479696501e-3,
    1.546928238405728e-4,
    1.520041113133878e-5,
)
