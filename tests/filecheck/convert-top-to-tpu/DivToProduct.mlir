// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// A Div of two tensors becomes a Mul by the Reciprocal of the divisor.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Sin"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %y = "top.Div"(%x, %a) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<2x4x6xbf16> loc("xa_bf16")
// CHECK-NEXT: %3 = "tpu.Active"(%2) {mode = "SIN", coeffs = []}{{.*}} -> tensor<2x4x6xbf16> loc("a")
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("a_reciprocal_table")
// CHECK-NEXT: %5 = "top.Weight"() : () -> tensor<1x1x32x8xbf16> loc("a_reciprocal_mantissa")
// CHECK-NEXT: %6 = "tpu.LutBF16"(%3, %4, %5) {lut_mode = #tpu<lut_mode Mantissa>, min_range = -0.000000e+00 : f64, max_range = 0.000000e+00 : f64}{{.*}} -> tensor<2x4x6xbf16> loc("a_reciprocal")
// CHECK-NEXT: %7 = "tpu.Mul"(%2, %6) {{.*}} -> tensor<2x4x6xbf16> loc("y")
// CHECK-NEXT: %8 = "tpu.Cast"(%7) {{.*}} -> tensor<2x4x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %8 : tensor<2x4x6xf32>
